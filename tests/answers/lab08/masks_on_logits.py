# kind: right
# about: Masks logits as transformers does: ascending sums, ties to the topk.

# %% solution="next_token_probabilities"
def next_token_probabilities(logits, temperature=1.0, top_k=None, top_p=1.0):
    logits = logits.to(torch.float32, copy=True)
    if temperature == 0:
        return torch.zeros_like(logits).scatter_(1, logits.max(1, keepdim=True)[1], 1.0)
    logits /= temperature
    if top_k is not None and top_k < logits.shape[1]:
        kept = logits.topk(top_k)[1]
        logits = torch.full_like(logits, -math.inf).scatter(1, kept, logits.gather(1, kept))
    if top_p < 1:
        ascending, order = logits.sort(1)
        out = ascending.softmax(1).double().cumsum(1) <= 1 - top_p
        out[:, -1] = False
        logits = logits.masked_fill(torch.zeros_like(out).scatter(1, order, out), -math.inf)
    return logits.softmax(1)
