# kind: wrong
# about: Divides by the number of ranks, as where every rank's loss is a mean.
# loses: gradients_averaged, two_steps
# says: "gradients_averaged": "divided by the number of ranks, not of tokens"

# %% edit="average_gradients"
# replace
        tensor.grad = grad / total
# by
        tensor.grad = grad / dist.get_world_size()
