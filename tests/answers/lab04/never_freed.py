# kind: wrong
# about: Blocks are gathered before use and never freed after forward: they are all whole by its end.
# loses: zero3_peak, zero3_traffic, zero3_prefetch
# says: "zero3_peak": "blocks are not freed after they have computed"
# says: "zero3_traffic": "the blocks were gathered once and kept"

# %% edit="zero_three"
# replace
        self.blocks[index].free()
# by
