# kind: wrong
# about: p.grad is set to zeros: right sums, but its memory stays.
# loses: accumulate_fp32
# says: "accumulate_fp32": "accumulate: p.grad must be None afterwards, so that its bf"

# %% solution="accumulate"
def accumulate(params, sums):
    for param, total in zip(params, sums):
        if param.grad is not None:
            total += param.grad.float()
            param.grad.zero_()
