# kind: wrong
# about: Divides by a temperature of 0.
# loses: sampling_temperature
# says: "sampling_temperature": "NaN"

# %% edit="next_token_probabilities"
# replace
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
# by
