# kind: wrong
# about: A skipped step counts for the bias correction.
# loses: skipped_step
# says: "skipped_step": "after a skipped step, which leaves m, v and the step count untouched: the tensor"

# %% solution="scaled_step"
def scaled_step(scaler, optimizer, grads):
    overflow = scaler.unscale(grads)
    if overflow:
        optimizer.steps += 1
    else:
        optimizer.step(grads)
    scaler.update(overflow)
    return not overflow
