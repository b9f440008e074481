# kind: wrong
# about: Skips tensors without a gradient, and their replicas wait.
# loses: gradients_averaged
# says: "gradients_averaged": "all_reduce"

# %% edit="average_gradients"
# replace
    for tensor, group in [(router, None), *((one, replicas) for one in experts.values())]:
# by
    for tensor, group in [(router, None), *((one, replicas) for one in experts.values())]:
        if tensor.grad is None:
            continue
