# kind: wrong
# about: Keeps the S x S weights for the backward pass.
# loses: blockwise_memory, blockwise_work
# says: "blockwise_memory": "MiB at the peak of the forward pass"

# %% edit="blockwise_backward"
# replace
        out = out.to(q.dtype)
# by
        out = out.to(q.dtype)
        seen = visible(q_pos, k_pos, **rule)
        scores = (q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
        ctx.weights = (scores - lse.masked_fill(lse == -math.inf, 0)[..., None]).exp()
