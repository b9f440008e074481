# kind: wrong
# about: The zero point is added on the way back.
# loses: round_trip, awkward
# says: "round_trip": "the zero point was added"

# %% edit="quantise"
# replace
    return (q.float() - zero) * scale
# by
    return (q.float() + zero) * scale
