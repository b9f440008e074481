# kind: wrong
# about: Averages the ranks' weights in place of taking one rank's.
# loses: broadcast_values, broadcast_traffic
# says: "broadcast_traffic": "2 times the"

# %% solution="broadcast_model"
def broadcast_model(model, src=0):
    for tensor in [*model.parameters(), *model.buffers()]:
        whole = tensor.detach().contiguous()
        dist.all_reduce(whole)
        tensor.detach().copy_(whole / dist.get_world_size())
