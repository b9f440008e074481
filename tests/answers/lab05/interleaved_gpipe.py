# kind: wrong
# about: All forwards of all stages, then all backwards: as fast, but everything is in flight.
# loses: interleaved_bubble
# says: "interleaved_bubble": "that is GPipe"

# %% edit="interleaved"
# replace
        warm_up = min(m * v, 2 * (p - 1 - rank) + (v - 1) * p)
# by
        warm_up = m * v
