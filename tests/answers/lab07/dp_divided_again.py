# kind: wrong
# about: The loss is divided by dp, and sync_gradients takes the mean over dp as well.
# loses: mesh_step_gradients, mesh_step_losses
# says: "mesh_step_gradients": "divided by 2 once too often"

# %% edit="mesh_step"
# replace
        return F.cross_entropy(logits.flatten(0, 1), wanted[k].flatten()) / micro_batches
# by
        return F.cross_entropy(logits.flatten(0, 1), wanted[k].flatten()) / micro_batches / dp

# replace
    return loss.item() / dp
# by
    return loss.item()
