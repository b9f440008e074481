# kind: wrong
# about: Returns True where the step was skipped.
# loses: skipped_step
# says: "skipped_step": "returned False; wanted True"

# %% solution="scaled_step"
def scaled_step(scaler, optimizer, grads):
    overflow = scaler.unscale(grads)
    if not overflow:
        optimizer.step(grads)
    scaler.update(overflow)
    return overflow
