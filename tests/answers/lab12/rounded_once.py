# kind: right
# about: The formula in float64: d * q is exact in float32 too, so the bits are the same.

# %% edit="decode"
# replace
    return d * torch.cat([low, high], 1).float() + m
# by
    return (d.double() * torch.cat([low, high], 1) + m).float()
