# kind: wrong
# about: Keeps all tokens that are as likely as the k-th.
# loses: sampling_top_k
# says: "sampling_top_k": "as likely as the k-th stay"

# %% solution="next_token_probabilities"
def next_token_probabilities(logits, temperature=1.0, top_k=None, top_p=1.0):
    logits = logits.float()
    if temperature == 0:
        return F.one_hot(logits.argmax(-1), logits.shape[-1]).float()
    logits = logits / temperature
    if top_k is not None:
        least = logits.topk(min(top_k, logits.shape[-1]))[0][:, -1:]
        logits = logits.masked_fill(logits < least, -math.inf)
    values, order = logits.softmax(-1).sort(-1, descending=True)
    if top_p < 1:
        before = values.cumsum(-1) - values
        before[:, 0] = 0
        values = values.masked_fill(before >= top_p, 0)
        values = values / values.sum(-1, keepdim=True)
    return torch.zeros_like(values).scatter(-1, order, values)
