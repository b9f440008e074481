# kind: wrong
# about: exp(-inf - (-inf)): a row whose first block is masked is NaN for good (F01, F02).
# loses: online_masked
# says: "online_masked": "NaN where all keys of the first block are masked, and later ones are not"

# %% edit="online"
# replace
    safe = top.masked_fill(top == -math.inf, 0)  # such a row has seen nothing: every exp below is 0
# by
    safe = top
