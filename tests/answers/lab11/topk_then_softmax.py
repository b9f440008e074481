# kind: right
# about: Renormalised weights are the softmax of the k largest logits; softmax over all only where they are not.

# %% solution="route"
def route(logits, k, renormalise=True):
    top, ids = logits.float().topk(k)
    whole = torch.zeros(len(logits)) if renormalise else logits.float().logsumexp(-1)
    weights = top.softmax(-1) if renormalise else (top - whole[:, None]).exp()
    return ids, weights
