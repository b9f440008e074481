# kind: wrong
# about: The losses of the micro-batches are means, and nobody divides them by their number.
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "summed over the 3 micro-batches: each loss must be divided by their number"

# %% edit="mesh_step"
# replace
        return F.cross_entropy(logits.flatten(0, 1), wanted[k].flatten()) / micro_batches
# by
        return F.cross_entropy(logits.flatten(0, 1), wanted[k].flatten())

# replace
    return loss.item() / dp
# by
    return loss.item() / dp / micro_batches
