# kind: wrong
# about: Asymmetric levels up to 255 kept as int8.
# loses: asymmetric, channels, awkward
# says: "asymmetric": "q"

# %% edit="quantise"
# replace
    dtype = torch.int8 if symmetric else torch.uint8
# by
    dtype = torch.int8
