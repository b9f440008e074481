# kind: right
# about: q, k and v in one message, lists of pieces, tokens sorted afterwards.

# %% solution="all_to_all_attention"
def deal(x, seq, to_heads):
    """Pieces to everybody and from everybody, by messages."""
    rank, ranks = dist.get_rank(), dist.get_world_size()
    places = [zigzag_positions(seq, r, ranks) for r in range(ranks)]
    out = list(x.tensor_split(ranks, -3)) if to_heads else [x[..., place, :] for place in places]
    out = [part.contiguous() for part in out]
    into = []
    for r in range(ranks):
        shape = list(out[0].shape)
        shape[-2] = len(places[r]) if to_heads else len(places[rank])
        into.append(x.new_empty(shape))
    into[rank].copy_(out[rank])
    works = [dist.isend(out[r], r) for r in range(ranks) if r != rank]
    works += [dist.irecv(into[r], r) for r in range(ranks) if r != rank]
    for work in works:
        work.wait()
    if not to_heads:
        return torch.cat(into, -3)
    return torch.cat(into, -2)[..., torch.cat(places).argsort(), :]


class Deal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seq, to_heads):
        ctx.options = seq, not to_heads
        return deal(x, seq, to_heads)

    @staticmethod
    def backward(ctx, grad):
        return deal(grad, *ctx.options), None, None


def all_to_all_attention(q, k, v, seq, tile, **rule):
    together = Deal.apply(torch.stack([q, k, v]), seq, True)
    return Deal.apply(blockwise_attention(*together, tile, **rule), seq, False)
