# kind: wrong
# about: All tokens and heads of a call share a scale.
# loses: int8_values
# says: "int8_values": "Int8Cache"

# %% edit="int8_cache"
# replace
            levels, scales, _ = quantise(new, 8, group_size=new.shape[-1])
# by
            levels, scales, _ = quantise(new, 8)
