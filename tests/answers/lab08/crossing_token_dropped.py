# kind: wrong
# about: The token with which the sum reaches p is not kept.
# loses: sampling_top_p
# says: "sampling_top_p": "it belongs to the nucleus"

# %% edit="next_token_probabilities"
# replace
        before = values.cumsum(-1) - values
# by
        before = values.cumsum(-1)
