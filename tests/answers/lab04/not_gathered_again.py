# kind: wrong
# about: Frees after forward and does not gather for backward.
# loses: zero3_values, zero3_rest, zero3_peak, zero3_traffic, zero3_prefetch
# says: "zero3_values": "out of bounds for storage of size 0"

# %% edit="zero_three"
# replace
        if output.requires_grad:
            output.register_hook(lambda grad: self._need(index, index - 1))
# by
