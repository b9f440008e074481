# kind: wrong
# about: Gate and up are added up over the ranks as well.
# loses: forward_values, forward_traffic, served_tokens, served_file
# says: "forward_traffic": "all-reduces"

# %% edit="forward"
# replace
        x = x + row(F.silu(gate) * up, own[f"blk.{n}.ffn_down.weight"], None, group)
# by
        dist.all_reduce(gate, group=group)
        x = x + row(F.silu(gate) * up, own[f"blk.{n}.ffn_down.weight"], None, group)
