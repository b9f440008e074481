# kind: wrong
# about: Exponentials without a maximum: they overflow.
# loses: online_stream
# says: "online_stream": "online_update"

# %% solution="online"
def online_update(state, scores, values):
    weights = scores.exp()
    zero = torch.zeros_like(scores[..., 0])
    _, l, u = state or (zero, 0, 0)  # noqa: E741
    return zero, l + weights.sum(-1), u + weights @ values


def online_finish(state):
    m, l, u = state  # noqa: E741
    return u / l.masked_fill(l == 0, 1)[..., None], m + l.log()
