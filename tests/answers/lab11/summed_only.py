# kind: wrong
# about: Adds up and never divides.
# loses: gradients_averaged, two_steps
# says: "gradients_averaged": "the mean over the tokens of all ranks is wanted"

# %% edit="average_gradients"
# replace
        tensor.grad = grad / total
# by
        tensor.grad = grad
