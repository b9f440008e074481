# kind: wrong
# about: After an overflow sets the gradients to 0 and steps: moments decay, the count rises, weights move.
# loses: skipped_step
# says: "skipped_step": "times what is wanted"

# %% solution="scaled_step"
def scaled_step(scaler, optimizer, grads):
    overflow = scaler.unscale(grads)
    if overflow:
        for grad in grads:
            grad.zero_()
    optimizer.step(grads)
    scaler.update(overflow)
    return not overflow
