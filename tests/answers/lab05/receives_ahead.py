# kind: right
# about: Posts every receive of the step at its beginning.
# loses:

# %% edit="run_schedule"
# replace
        buffer = torch.empty(*inputs[k].shape, hidden)
        dist.recv(buffer, source % p, tag=tag(op, stage, k))
# by
        request, buffer = coming.pop((op, stage, k))
        request.wait()

# replace
            post("B", stage - 1, k, x.grad)

    for op, stage, k in schedule[rank]:
# by
            post("B", stage - 1, k, x.grad)

    coming = {}
    for op, stage, k in schedule[rank]:
        source = stage - 1 if op == "F" else stage + 1
        if 0 <= source <= last and source % p != rank:
            buffer = torch.empty(*inputs[k].shape, hidden)
            coming[op, stage, k] = dist.irecv(buffer, source % p, tag=tag(op, stage, k)), buffer
    for op, stage, k in schedule[rank]:
