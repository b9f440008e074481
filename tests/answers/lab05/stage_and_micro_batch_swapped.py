# kind: wrong
# about: Actions as (op, micro_batch, stage).
# loses: gpipe_order
# says: "gpipe_order": "rank 0 runs F of stage 1, micro-batch 0; that stage is on rank 1."

# %% solution="gpipe"
def gpipe(p, m, v=1):
    return [[(op, k, rank) for op in "FB" for k in range(m)] for rank in range(p)]
