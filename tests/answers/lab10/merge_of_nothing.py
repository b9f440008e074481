# kind: wrong
# about: Two parts that saw nothing: -inf - (-inf).
# loses: merge_gaps, ring_values, ring_gradients
# says: "merge_gaps": "NaN where neither part saw anything"

# %% edit="merge"
# replace
    safe = lse.masked_fill(lse == -math.inf, 0)[..., None]
# by
    safe = lse[..., None]
