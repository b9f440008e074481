# kind: wrong
# about: Divides by the root of H in place of D.
# loses: gqa_values, cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged, window_values, window_long_calls
# says: "gqa_values": "root of N D, not of D"

# %% edit="gqa_attention"
# replace
    scores = (grouped @ k.transpose(-2, -1)).view(batch, heads, seq, places) / math.sqrt(dim)
# by
    scores = (grouped @ k.transpose(-2, -1)).view(batch, heads, seq, places) / math.sqrt(heads * dim)
