# kind: wrong
# about: Row-parallel matrices are cut by rows.
# loses: shards, forward_values, forward_traffic, served_tokens, served_file
# says: "shards": "attn_output"

# %% edit="shard_weights"
# replace
            dim = 1 if "attn_output" in name or "ffn_down" in name else 0
# by
            dim = 0
