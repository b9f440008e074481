# kind: wrong
# about: Divides the experts' gradients by the tokens of their replicas only.
# loses: gradients_averaged, two_steps
# says: "gradients_averaged": "divided by the tokens of its replicas only"

# %% edit="average_gradients"
# replace
    dist.all_reduce(total)
# by
    near = total.clone()
    dist.all_reduce(total)
    dist.all_reduce(near, group=replicas)
# replace
        tensor.grad = grad / total
# by
        tensor.grad = grad / (total if group is None else near)
