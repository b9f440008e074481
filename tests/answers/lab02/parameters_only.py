# kind: wrong
# about: D02: buffers are not broadcast.
# loses: broadcast_values, broadcast_traffic
# says: "broadcast_values": "is not what is wanted: still what this rank held before"
# says: "broadcast_traffic": "bytes reached rank 1; parameters and buffers together have"

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    for p in model.parameters():
        dist.broadcast(p.data, src)
