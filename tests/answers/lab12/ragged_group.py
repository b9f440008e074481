# kind: wrong
# about: Numbers that fill no group are left to an error of torch.
# loses: groups
# says: "groups": "RuntimeError"

# %% edit="quantise"
# replace
        if x.shape[-1] % group_size:
            raise ValueError(f"{x.shape[-1]} numbers do not divide into groups of {group_size}")
# by
