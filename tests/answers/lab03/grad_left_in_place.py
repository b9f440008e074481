# kind: wrong
# about: p.grad is not cleared, so the next backward pass adds to it and it is counted again.
# loses: accumulate_fp32
# says: "accumulate_fp32": "p.grad was not cleared, so each backward pass added to the one before"

# %% solution="accumulate"
def accumulate(params, sums):
    for param, total in zip(params, sums):
        if param.grad is not None:
            total += param.grad.float()
