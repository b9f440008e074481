# kind: wrong
# about: The rows of value matrices are moved as well.
# loses: file_weights, served_file
# says: "file_weights": "its rows were moved"

# %% edit="read_weights"
# replace
        for part, heads in (("attn_q", config.heads), ("attn_k", config.kv_heads)):
# by
        for part, heads in (("attn_q", config.heads), ("attn_k", config.kv_heads), ("attn_v", config.kv_heads)):
