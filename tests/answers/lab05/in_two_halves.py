# kind: right
# about: Cuts each message in two; the loss is scaled where the gradient enters.
# loses:

# %% edit="run_schedule"
# replace
            tensor = tensor.contiguous()
            sending[op, stage, k] = dist.isend(tensor, stage % p, tag=tag(op, stage, k)), tensor
# by
            parts = tensor.reshape(-1).tensor_split(2)
            requests = [dist.isend(part, stage % p, tag=2 * tag(op, stage, k) + i) for i, part in enumerate(parts)]
            sending[op, stage, k] = requests, tensor

# replace
        dist.recv(buffer, source % p, tag=tag(op, stage, k))
# by
        for i, part in enumerate(buffer.view(-1).tensor_split(2)):
            dist.recv(part, source % p, tag=2 * tag(op, stage, k) + i)

# replace
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100, reduction="sum") / counted
            losses.append(y.item())
# by
            y = F.cross_entropy(y.flatten(0, 1), wanted[k].flatten(), ignore_index=-100, reduction="sum")
            losses.append(y.item() / float(counted))

# replace
        y.backward(None if stage == last else take("B", stage, k, stage + 1))
        if ("F", stage + 1, k) in sending:
            sending.pop(("F", stage + 1, k))[0].wait()
# by
        y.backward(torch.tensor(1 / float(counted)) if stage == last else take("B", stage, k, stage + 1))
        if ("F", stage + 1, k) in sending:
            for request in sending.pop(("F", stage + 1, k))[0]:
                request.wait()

# replace
    for request, _ in sending.values():
        request.wait()
# by
    for requests, _ in sending.values():
        for request in requests:
            request.wait()
