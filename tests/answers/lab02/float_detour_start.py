# kind: wrong
# about: Everything is put into one float64 tensor: a large integer buffer is rounded, float32 doubles its bytes.
# loses: broadcast_values, broadcast_traffic
# says: "broadcast_values": "\"seen\""
# says: "broadcast_traffic": "times the"

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    tensors = [*model.parameters(), *model.buffers()]
    flat = torch.cat([x.detach().reshape(-1).double() for x in tensors])
    dist.broadcast(flat, src)
    for x, part in zip(tensors, flat.split([x.numel() for x in tensors])):
        x.detach().copy_(part.view(x.shape))
