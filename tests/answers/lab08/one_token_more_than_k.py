# kind: wrong
# about: k + 1 tokens stay (S03).
# loses: sampling_top_k, sampling_top_p
# says: "sampling_top_k": "one token more than k"

# %% edit="next_token_probabilities"
# replace
        values[:, top_k:] = 0
# by
        values[:, top_k + 1 :] = 0
