# kind: wrong
# about: Puts new tensors into the list in place of adding to those of the caller, and never stores them.
# loses: accumulate_fp32
# says: "accumulate_fp32": "the tensor is exactly"

# %% solution="accumulate"
def accumulate(params, sums):
    for param, total in zip(params, sums):
        if param.grad is not None:
            total = total + param.grad
            param.grad = None
