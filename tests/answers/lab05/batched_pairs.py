# kind: right
# about: Every message by batch_isend_irecv; the gradient of a received activation by torch.autograd.grad.
# loses:

# %% edit="run_schedule"
# replace
            sending[op, stage, k] = dist.isend(tensor, stage % p, tag=tag(op, stage, k)), tensor
# by
            sending[op, stage, k] = dist.batch_isend_irecv([dist.P2POp(dist.isend, tensor, stage % p, tag=tag(op, stage, k))])[0], tensor

# replace
        dist.recv(buffer, source % p, tag=tag(op, stage, k))
# by
        dist.batch_isend_irecv([dist.P2POp(dist.irecv, buffer, source % p, tag=tag(op, stage, k))])[0].wait()

# replace
        y.backward(None if stage == last else take("B", stage, k, stage + 1))
# by
        torch.autograd.backward([y], [None if stage == last else take("B", stage, k, stage + 1)])
