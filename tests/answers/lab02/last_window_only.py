# kind: wrong
# about: Clears the gradients before every micro-batch: only the last one counts.
# loses: accumulate_values

# %% edit="accumulate"
# replace
    for tokens, targets in micro_batches:
# by
    for tokens, targets in micro_batches:
        model.zero_grad()
