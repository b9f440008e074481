# kind: wrong
# about: All-reduces the experts' gradients over all ranks, though these hold different experts (E06).
# loses: gradients_averaged, two_steps
# says: "gradients_averaged": "other ranks hold other experts"

# %% edit="average_gradients"
# replace
    for tensor, group in [(router, None), *((one, replicas) for one in experts.values())]:
# by
    for tensor, group in [(router, None), *((one, None) for one in experts.values())]:
