# kind: right
# about: Gathers pieces of equal length, padded, and puts each where it belongs.

# %% edit="split_tokens"
# replace
        whole = grad.new_zeros(ctx.shape)
        whole[:, ctx.positions] = grad
        dist.all_reduce(whole)
# by
        ranks, seq = dist.get_world_size(), ctx.shape[1]
        places = [zigzag_positions(seq, r, ranks) for r in range(ranks)]
        most = max(len(place) for place in places)
        padded = F.pad(grad, (0, 0, 0, most - grad.shape[1])).contiguous()
        parts = [torch.empty_like(padded) for _ in range(ranks)]
        dist.all_gather(parts, padded)
        whole = grad.new_empty(ctx.shape)
        for place, part in zip(places, parts, strict=True):
            whole[:, place] = part[:, : len(place)]
