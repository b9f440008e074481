# kind: wrong
# about: Queries and keys are not turned.
# loses: forward_values, served_tokens, served_file
# says: "forward_values": "were not turned by their positions"

# %% edit="forward"
# replace
        q, k = (apply_rope(part, positions, config.rope_theta) for part in (q, k))
# by
