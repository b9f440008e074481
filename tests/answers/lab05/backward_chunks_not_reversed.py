# kind: wrong
# about: Backwards begin with the first stage of a rank instead of the last.
# loses: interleaved_order, interleaved_bubble
# says: "interleaved_order": "it cannot run"

# %% edit="interleaved"
# replace
        chunk = chunk if op == "F" else v - 1 - chunk
# by
