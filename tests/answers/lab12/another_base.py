# kind: wrong
# about: The usual base of the rotary angles, not that of the file.
# loses: forward_values, served_tokens, served_file
# says: "forward_values": "config.rope_theta"

# %% edit="forward"
# replace
        q, k = (apply_rope(part, positions, config.rope_theta) for part in (q, k))
# by
        q, k = (apply_rope(part, positions) for part in (q, k))
