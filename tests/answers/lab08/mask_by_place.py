# kind: wrong
# about: A triangle down to the lower right corner: right until there is padding behind tokens, or another order.
# loses: visible_pairs
# says: "visible_pairs": "the last query of row 0 got"

# %% solution="visible"
def visible(query_positions, key_positions, window=None):
    seq, places = query_positions.shape[1], key_positions.shape[1]
    mask = torch.ones(seq, places, dtype=torch.bool).tril(places - seq) & (key_positions >= 0)[:, None]
    if window is not None:
        mask &= query_positions[:, :, None] - key_positions[:, None] < window
    return mask
