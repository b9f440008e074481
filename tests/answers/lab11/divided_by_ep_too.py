# kind: wrong
# about: Divides the experts' gradients by the tokens and by ep (E06).
# loses: gradients_averaged, two_steps
# says: "gradients_averaged": "and then by the ranks"

# %% edit="average_gradients"
# replace
        tensor.grad = grad / total
# by
        tensor.grad = grad / total if group is None else grad / total / (dist.get_world_size() // dist.get_world_size(group))
