# kind: wrong
# about: Returns the probabilities in the order of their size.
# loses: sampling_temperature, sampling_top_k, sampling_top_p
# says: "sampling_top_k": "put back after sorting"

# %% edit="next_token_probabilities"
# replace
    return torch.zeros_like(values).scatter(-1, order, values)
# by
    return values
