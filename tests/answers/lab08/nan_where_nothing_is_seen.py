# kind: wrong
# about: A softmax over nothing but -inf: NaN for padding, which spreads.
# loses: gqa_values, cache_ragged, generate_ragged, window_values, window_long_calls
# says: "gqa_values": "NaN, a softmax over nothing"
# says: "cache_ragged": "NaN in the logits"

# %% edit="gqa_attention"
# replace
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1).masked_fill(hidden, 0.0)
# by
    weights = scores.masked_fill(hidden, -math.inf).softmax(-1)
