# kind: wrong
# about: Divides by the tokens of all ranks and by the ranks as well.
# loses: accumulate_values
# says: "accumulate_values": "1/2 of what is wanted: divided by the 2 ranks, although the tokens of all ranks are counted"

# %% edit="accumulate"
# replace
            p.grad /= total
# by
            p.grad /= total * dist.get_world_size()
