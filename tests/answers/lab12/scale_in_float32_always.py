# kind: wrong
# about: scale_dtype is ignored.
# loses: awkward
# says: "awkward": "torch.float32, wanted torch.float16"

# %% edit="quantise"
# replace
    scale = scale.to(scale_dtype)
# by
