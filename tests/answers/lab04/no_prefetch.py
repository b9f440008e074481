# kind: wrong
# about: Gathers a block when it is needed, and not before.
# loses: zero3_prefetch
# says: "zero3_prefetch": "unit 1 is not being gathered yet"

# %% edit="zero_three"
# replace
        if 0 <= following < len(self.blocks):
            self.blocks[following].prefetch()
# by
