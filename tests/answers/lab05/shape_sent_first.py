# kind: wrong
# about: Sends the shape before each activation; both sides know it already.
# loses: run_messages
# says: "run_messages": "times the"

# %% edit="run_schedule"
# replace
            tensor = tensor.contiguous()
# by
            tensor = tensor.contiguous()
            shape = torch.tensor(tensor.shape)
            sending["shape", op, stage, k] = dist.isend(shape, stage % p, tag=900 + tag(op, stage, k)), shape

# replace
        buffer = torch.empty(*inputs[k].shape, hidden)
# by
        buffer = torch.empty(*inputs[k].shape, hidden)
        dist.recv(torch.empty(3, dtype=torch.int64), source % p, tag=900 + tag(op, stage, k))
