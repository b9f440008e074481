# kind: wrong
# about: Prefetches in forward; in backward each block is gathered when it is needed.
# loses: zero3_prefetch
# says: "zero3_prefetch": "computes in backward, unit"

# %% edit="zero_three"
# replace
            output.register_hook(lambda grad: self._need(index, index - 1))
# by
            output.register_hook(lambda grad: self._need(index, -1))
