# kind: wrong
# about: Divides the router's gradient and never adds it up: the ranks' routers drift apart (E08).
# loses: gradients_averaged, two_steps
# says: "gradients_averaged": "it is the part of this rank's tokens"

# %% edit="average_gradients"
# replace
        dist.all_reduce(grad, group=group)
# by
        if tensor is not router:
            dist.all_reduce(grad, group=group)
