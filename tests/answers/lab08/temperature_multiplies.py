# kind: wrong
# about: Multiplies by the temperature.
# loses: sampling_temperature, sampling_top_k, sampling_top_p
# says: "sampling_temperature": "multiplied by the temperature"

# %% edit="next_token_probabilities"
# replace
    values, order = (logits / temperature).softmax(-1).sort(-1, descending=True)
# by
    values, order = (logits * temperature).softmax(-1).sort(-1, descending=True)
