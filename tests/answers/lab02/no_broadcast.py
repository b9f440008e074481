# kind: wrong
# about: D01: replicas start from different weights: nothing is broadcast.
# loses: broadcast_values, broadcast_traffic
# says: "broadcast_values": "still what this rank held before, it was never sent"
# says: "broadcast_traffic": "only 0 bytes reached rank 1"

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    pass
