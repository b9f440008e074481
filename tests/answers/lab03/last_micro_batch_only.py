# kind: wrong
# about: Z02: each micro-batch overwrites the sum.
# loses: accumulate_fp32
# says: "accumulate_fp32": "only the last micro-batch is in it"

# %% solution="accumulate"
def accumulate(params, sums):
    for param, total in zip(params, sums):
        if param.grad is not None:
            total.copy_(param.grad)
            param.grad = None
