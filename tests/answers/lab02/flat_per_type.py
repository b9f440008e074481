# kind: right
# about: One broadcast for each dtype, flattened.

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    tensors = [x.detach() for x in [*model.parameters(), *model.buffers()]]
    for dtype in dict.fromkeys(x.dtype for x in tensors):
        same = [x for x in tensors if x.dtype == dtype]
        flat = torch.cat([x.reshape(-1) for x in same])
        dist.broadcast(flat, src)
        for x, part in zip(same, flat.split([x.numel() for x in same])):
            x.copy_(part.view(x.shape))
