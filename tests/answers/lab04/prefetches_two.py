# kind: wrong
# about: Gathers two blocks ahead.
# loses: zero3_prefetch
# says: "zero3_prefetch": "one ahead, 2 in all, is enough"

# %% edit="zero_three"
# replace
            self.blocks[following].prefetch()
# by
            self.blocks[following].prefetch()
            further = 2 * following - index
            if 0 <= further < len(self.blocks):
                self.blocks[further].prefetch()
