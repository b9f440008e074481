# kind: wrong
# about: A new maximum comes, and the old sums are not rescaled.
# loses: online_stream, online_masked
# says: "online_stream": "old sums were not rescaled"

# %% edit="online"
# replace
    return top, l * shrink + weights.sum(-1), u * shrink[..., None] + weights @ values
# by
    return top, l + weights.sum(-1), u + weights @ values
