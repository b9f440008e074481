# kind: wrong
# about: Averages the parameters, not the gradients: with plain SGD and averaging after the step this would even be equal.
# loses: average_values, average_special
# says: "average_values": "this rank's own gradient, nothing was averaged"

# %% solution="average_gradients"
def average_gradients(model):
    for p in model.parameters():
        if p.requires_grad:
            dist.all_reduce(p.data)
            p.data /= dist.get_world_size()
