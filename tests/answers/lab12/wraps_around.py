# kind: wrong
# about: q - zero in one byte.
# loses: round_trip, awkward
# says: "round_trip": "wrapped around"

# %% edit="quantise"
# replace
    scale, zero = (spread(t.float(), q.dim(), dim, group_size) for t in (scale, zero))
    return (q.float() - zero) * scale
# by
    scale, zero = (spread(t, q.dim(), dim, group_size) for t in (scale, zero))
    return (q - zero).float() * scale.float()
