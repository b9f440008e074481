# kind: wrong
# about: The feed-forward is not added to the stream.
# loses: forward_values, served_tokens, served_file
# says: "forward_values": "forward"

# %% edit="forward"
# replace
        x = x + row(F.silu(gate) * up, own[f"blk.{n}.ffn_down.weight"], None, group)
# by
        x = row(F.silu(gate) * up, own[f"blk.{n}.ffn_down.weight"], None, group)
