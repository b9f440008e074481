# kind: wrong
# about: A triangle from the upper left corner, which forgets the cached prefix (K07).
# loses: visible_pairs, cache_values, cache_chunks, cache_ragged, cache_step, generate_rows, generate_ragged, window_values, window_long_calls
# says: "visible_pairs": "where a token stands was taken for its position"
# says: "cache_values": "the mask forgets those that are cached"

# %% solution="visible"
def visible(query_positions, key_positions, window=None):
    seq, places = query_positions.shape[1], key_positions.shape[1]
    mask = torch.ones(seq, places, dtype=torch.bool).tril() & (key_positions >= 0)[:, None]
    if window is not None:
        mask &= query_positions[:, :, None] - key_positions[:, None] < window
    return mask
