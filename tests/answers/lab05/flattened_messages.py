# kind: right
# about: Sends activations and gradients as one flat row.
# loses:

# %% edit="run_schedule"
# replace
            tensor = tensor.contiguous()
# by
            tensor = tensor.reshape(-1)

# replace
        buffer = torch.empty(*inputs[k].shape, hidden)
        dist.recv(buffer, source % p, tag=tag(op, stage, k))
        return buffer
# by
        buffer = torch.empty(inputs[k].numel() * hidden)
        dist.recv(buffer, source % p, tag=tag(op, stage, k))
        return buffer.view(*inputs[k].shape, hidden)
