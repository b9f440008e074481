# kind: wrong
# about: Keeps float32 copies of q, k and v between the passes, besides the inputs.
# loses: blockwise_memory
# says: "blockwise_memory": "are held between the passes"

# %% edit="blockwise_backward"
# replace
        ctx.save_for_backward(q, k, v, out, lse)
# by
        ctx.save_for_backward(q.float().clone(), k.float().clone(), v.float().clone(), out, lse)
