# kind: wrong
# about: SiLU goes to the wrong matrix.
# loses: forward_values, served_tokens, served_file
# says: "forward_values": "SiLU belongs to the gate"

# %% edit="forward"
# replace
        x = x + row(F.silu(gate) * up, own[f"blk.{n}.ffn_down.weight"], None, group)
# by
        x = x + row(F.silu(up) * gate, own[f"blk.{n}.ffn_down.weight"], None, group)
