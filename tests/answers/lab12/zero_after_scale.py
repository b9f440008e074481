# kind: wrong
# about: The zero point is taken away after scaling.
# loses: round_trip, awkward
# says: "round_trip": "taken away after scaling"

# %% edit="quantise"
# replace
    return (q.float() - zero) * scale
# by
    return q.float() * scale - zero
