# kind: wrong
# about: 0/0 for a row that sees nothing (F01).
# loses: online_masked
# says: "online_masked": "NaN where all keys are masked"

# %% edit="online"
# replace
    seen = l > 0
    return torch.where(seen[..., None], u / l.where(seen, 1)[..., None], 0), m + l.log()
# by
    return u / l[..., None], m + l.log()
