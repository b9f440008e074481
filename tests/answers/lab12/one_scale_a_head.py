# kind: wrong
# about: All tokens of a call share the scale of their head.
# loses: int8_values
# says: "int8_values": "Int8Cache"

# %% edit="int8_cache"
# replace
            levels, scales, _ = quantise(new, 8, group_size=new.shape[-1])
# by
            scales = (new.abs().amax((2, 3), keepdim=True) / 127).expand(*new.shape[:3], 1)
            levels = (new / scales).round()
