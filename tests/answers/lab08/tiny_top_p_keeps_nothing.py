# kind: wrong
# about: Sums from the least likely: 1 - 1e-8 is 1, and no token passes it (S02).
# loses: sampling_top_p
# says: "sampling_top_p": "NaN"

# %% edit="next_token_probabilities"
# replace
        before = values.cumsum(-1) - values
        values[:, 1:].masked_fill_(before[:, 1:] >= top_p, 0)
# by
        ascending = values.flip(-1).cumsum(-1).flip(-1)
        values = values * (ascending > 1 - top_p)
