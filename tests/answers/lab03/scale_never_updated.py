# kind: wrong
# about: Forgets scaler.update: the factor stays as large as it was.
# loses: skipped_step
# says: "skipped_step": "scaler.update was called with []; once with False is wanted, whether the step is"

# %% solution="scaled_step"
def scaled_step(scaler, optimizer, grads):
    overflow = scaler.unscale(grads)
    if not overflow:
        optimizer.step(grads)
    return not overflow
