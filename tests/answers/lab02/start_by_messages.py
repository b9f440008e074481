# kind: right
# about: isend to every other rank in place of broadcast; works on .data.

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    tensors = list(model.parameters()) + list(model.buffers())
    for tensor in tensors:
        data = tensor.data
        if dist.get_rank() == src:
            copy = data.clone(memory_format=torch.contiguous_format)
            for work in [dist.isend(copy, r) for r in range(dist.get_world_size()) if r != src]:
                work.wait()
        else:
            copy = torch.empty(data.shape, dtype=data.dtype)
            dist.recv(copy, src)
            data.copy_(copy)
