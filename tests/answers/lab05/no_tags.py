# kind: wrong
# about: All messages between two ranks carry the same tag: they are taken in the order they were sent, not asked for.
# loses: run_one_f_one_b
# says: "run_one_f_one_b": "gradients are needed in another order than sent: gradients of rank 0"

# %% edit="run_schedule"
# replace
            sending[op, stage, k] = dist.isend(tensor, stage % p, tag=tag(op, stage, k)), tensor
# by
            sending[op, stage, k] = dist.isend(tensor, stage % p), tensor

# replace
        dist.recv(buffer, source % p, tag=tag(op, stage, k))
# by
        dist.recv(buffer, source % p)
