# kind: wrong
# about: M09: takes it that every parameter has a gradient in every micro-batch.
# loses: accumulate_fp32
# says: "accumulate_fp32": "AttributeError: 'NoneType' object has no attribute 'float'"

# %% solution="accumulate"
def accumulate(params, sums):
    for param, total in zip(params, sums):
        total += param.grad.float()
        param.grad = None
