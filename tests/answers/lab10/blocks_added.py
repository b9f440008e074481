# kind: wrong
# about: Adds up the softmax results of the blocks.
# loses: online_stream, online_masked
# says: "online_stream": "the sum of each block's own softmax"

# %% edit="online"
# replace
    weights, shrink = (scores - safe[..., None]).exp(), (m - safe).exp()
    return top, l * shrink + weights.sum(-1), u * shrink[..., None] + weights @ values
# by
    own = scores.softmax(-1).nan_to_num(0)  # of this block alone
    weights, shrink = (scores - safe[..., None]).exp(), (m - safe).exp()
    return top, l * shrink + weights.sum(-1), u + own @ values
# replace
    return torch.where(seen[..., None], u / l.where(seen, 1)[..., None], 0), m + l.log()
# by
    return torch.where(seen[..., None], u, 0), m + l.log()
