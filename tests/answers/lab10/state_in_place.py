# kind: wrong
# about: Writes into the state that it was given.
# loses: online_stream
# says: "online_stream": "after block 0"

# %% edit="online"
# replace
    return top, l * shrink + weights.sum(-1), u * shrink[..., None] + weights @ values
# by
    m.copy_(top)
    l.mul_(shrink).add_(weights.sum(-1))
    u.mul_(shrink[..., None]).add_(weights @ values)
    return m, l, u
