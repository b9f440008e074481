# kind: wrong
# about: Gathers the next block ahead, but waits for it at once: nothing overlaps.
# loses: zero3_prefetch
# says: "zero3_prefetch": "waited for at once"

# %% edit="zero_three"
# replace
            self.blocks[following].prefetch()
# by
            self.blocks[following].need()
