# kind: wrong
# about: Walks through state_dict(), where the shared weight stands twice.
# loses: broadcast_traffic
# says: "broadcast_traffic": "Are shared weights sent once"

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    for tensor in model.state_dict().values():
        whole = tensor.contiguous()
        dist.broadcast(whole, src)
        tensor.copy_(whole)
