# kind: wrong
# about: Masked scores become -1e9, so that a row that sees nothing averages all values.
# loses: online_masked
# says: "online_masked": "rows that see nothing must be 0"

# %% edit="online"
# replace
        state = scores.new_full(rows, -math.inf), scores.new_zeros(rows), scores.new_zeros(*rows, values.shape[-1])
    m, l, u = state  # noqa: E741
# by
        state = scores.new_full(rows, -math.inf), scores.new_zeros(rows), scores.new_zeros(*rows, values.shape[-1])
    m, l, u = state  # noqa: E741
    scores = scores.clamp(min=-1e9)
