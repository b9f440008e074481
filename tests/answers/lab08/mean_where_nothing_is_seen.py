# kind: wrong
# about: Hides with -1e9, so that a query that may see nothing gets a mean.
# loses: gqa_values
# says: "gqa_values": "gets the mean of all values"

# %% edit="gqa_attention"
# replace
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0)
# by
    weights = scores.masked_fill(hidden, -1e9).softmax(-1)
