# kind: wrong
# about: Divides the caller's logits.
# loses: sampling_temperature, sampling_top_k, sampling_top_p
# says: "sampling_temperature": "which stay unchanged"

# %% edit="next_token_probabilities"
# replace
    values, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
# by
    values, order = logits.div_(temperature).softmax(-1).sort(-1, descending=True)
