# kind: wrong
# about: Gathers the pieces, and joins them in the order of ranks.
# loses: split_gradient
# says: "split_gradient": "in the order of ranks, not of positions"

# %% edit="split_tokens"
# replace
        whole = grad.new_zeros(ctx.shape)
        whole[:, ctx.positions] = grad
        dist.all_reduce(whole)
        return whole
# by
        ranks, seq = dist.get_world_size(), ctx.shape[1]
        parts = [grad.new_empty(grad.shape[0], len(zigzag_positions(seq, r, ranks)), grad.shape[2]) for r in range(ranks)]
        for source, part in enumerate(parts):
            if source == dist.get_rank():
                part.copy_(grad)
            dist.broadcast(part, source)
        return torch.cat(parts, 1)
