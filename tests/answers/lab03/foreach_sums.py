# kind: right
# about: Adds all gradients at once.

# %% solution="accumulate"
def accumulate(params, sums):
    pairs = [(total, param.grad.to(total.dtype)) for param, total in zip(params, sums) if param.grad is not None]
    if pairs:
        torch._foreach_add_([total for total, _ in pairs], [grad for _, grad in pairs])
    for param in params:
        param.grad = None
