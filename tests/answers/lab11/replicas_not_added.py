# kind: wrong
# about: Takes it that the all-to-all has added up everything.
# loses: gradients_averaged, two_steps
# says: "gradients_averaged": "its replicas were not added"

# %% edit="average_gradients"
# replace
        dist.all_reduce(grad, group=group)
# by
        if tensor is router:
            dist.all_reduce(grad, group=group)
