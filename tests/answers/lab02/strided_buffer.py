# kind: wrong
# about: C: a buffer that is not contiguous goes to gloo as it is and comes out garbled.
# loses: broadcast_values
# says: "broadcast_values": "\"table\""

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    for tensor in [*model.parameters(), *model.buffers()]:
        dist.broadcast(tensor.detach(), src)
