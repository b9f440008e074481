# kind: wrong
# about: With top_p = 1 no token passes the threshold, and argmax of nothing is token 0 of the order (S05).
# loses: sampling_temperature, sampling_top_k, sampling_top_p
# says: "sampling_temperature": "top_p = 1 keeps all tokens"

# %% edit="next_token_probabilities"
# replace
    if top_p < 1:
        before = values.cumsum(-1) - values
        values[:, 1:].masked_fill_(before[:, 1:] >= top_p, 0)
# by
    if True:
        cutoff = (values.cumsum(-1) > top_p + 1e-4).float().argmax(-1, keepdim=True)
        values = values.masked_fill(torch.arange(values.shape[-1]) > cutoff, 0)
