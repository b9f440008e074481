# kind: wrong
# about: M08: adds the bf16 gradients in bf16 and copies the sum over.
# loses: accumulate_fp32
# says: "accumulate_fp32": "256 + 1 is 256"

# %% solution="accumulate"
def accumulate(params, sums):
    for param, total in zip(params, sums):
        if param.grad is not None:
            total.copy_(total.to(bfloat16) + param.grad)
            param.grad = None
