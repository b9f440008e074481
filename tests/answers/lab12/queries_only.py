# kind: wrong
# about: Key matrices stay in the order of the file.
# loses: file_weights, served_file
# says: "file_weights": "in the file's order"

# %% edit="read_weights"
# replace
        for part, heads in (("attn_q", config.heads), ("attn_k", config.kv_heads)):
# by
        for part, heads in (("attn_q", config.heads),):
