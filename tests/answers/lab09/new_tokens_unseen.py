# kind: wrong
# about: Attends to what was in the cache before, and then writes.
# loses: paged_values, engine_outputs
# says: "paged_values": "paged_attention (one prompt, one block"

# %% edit="paged_attention"
# replace
    keys[new], values[new] = k[0].transpose(0, 1), v[0].transpose(0, 1)
# by
    kept_keys, kept_values = keys, values
    keys, values = keys.clone(), values.clone()
# replace
        begin += count
# by
        begin += count
    kept_keys[new], kept_values[new] = k[0].transpose(0, 1), v[0].transpose(0, 1)
