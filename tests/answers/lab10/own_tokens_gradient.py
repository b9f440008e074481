# kind: wrong
# about: The gradient of the replicated input holds this rank's tokens only (F15).
# loses: split_gradient
# says: "split_gradient": "the other ranks' gradients were not gathered"

# %% edit="split_tokens"
# replace
        dist.all_reduce(whole)
# by
