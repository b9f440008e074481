# kind: wrong
# about: Interleaved with the warm-up of 1F1B, p - 1 - r: later stages of a rank come too late.
# loses: interleaved_order, interleaved_bubble
# says: "interleaved_order": "it cannot run"

# %% edit="interleaved"
# replace
        warm_up = min(m * v, 2 * (p - 1 - rank) + (v - 1) * p)
# by
        warm_up = min(m * v, p - 1 - rank)
