# kind: wrong
# about: Updates the scale after an overflow, but steps all the same.
# loses: skipped_step
# says: "skipped_step": "the tensor is wrong"

# %% solution="scaled_step"
def scaled_step(scaler, optimizer, grads):
    overflow = scaler.unscale(grads)
    optimizer.step(grads)
    scaler.update(overflow)
    return not overflow
