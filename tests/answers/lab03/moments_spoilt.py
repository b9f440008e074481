# kind: wrong
# about: Steps first and puts the weights back after an overflow; the moments keep the NaN.
# loses: skipped_step
# says: "skipped_step": "after a skipped step, which leaves m, v and the step count untouched: the tensor"

# %% solution="scaled_step"
def scaled_step(scaler, optimizer, grads):
    overflow = scaler.unscale(grads)
    before = [param.detach().clone() for param in optimizer.params]
    masters = [master.clone() for master in optimizer.masters]
    optimizer.step(grads)
    if overflow:
        for param, weight in zip(optimizer.params, before):
            param.data.copy_(weight)
        for master, weight in zip(optimizer.masters, masters):
            master.copy_(weight)
    scaler.update(overflow)
    return not overflow
