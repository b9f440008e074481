# kind: wrong
# about: Interleaved with consecutive stages on a rank: r v, r v + 1, ...
# loses: interleaved_order, interleaved_bubble
# says: "interleaved_order": "that stage is on rank"

# %% edit="interleaved"
# replace
        return op, rank + chunk * p, group * p + within
# by
        return op, rank * v + chunk, group * p + within
