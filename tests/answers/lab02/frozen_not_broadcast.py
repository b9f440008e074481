# kind: wrong
# about: D02: only trainable parameters are broadcast, and the buffers.
# loses: broadcast_values, broadcast_traffic
# says: "broadcast_values": "\"shift\""

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    for x in [p.data for p in model.parameters() if p.requires_grad] + list(model.buffers()):
        whole = x.contiguous()
        dist.broadcast(whole, src)
        x.copy_(whole)
