# kind: wrong
# about: Tokens stand in the order in which they came, and the mask takes them for 0, 1, 2, ...
# loses: all_to_all_step
# says: "all_to_all_step": "tokens stand in the order of ranks"

# %% solution="all_to_all_attention"
def exchanged(x, seq, to_tokens):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    lengths = [len(zigzag_positions(seq, r, ranks)) for r in range(ranks)]
    parts = x.chunk(ranks, 1) if to_tokens else x.split(lengths, 2)
    heads = x.shape[1] // ranks if to_tokens else x.shape[1]
    shapes = [(x.shape[0], heads, lengths[r] if to_tokens else lengths[rank], x.shape[3]) for r in range(ranks)]
    got = [x.new_empty(shape) for shape in shapes]
    sizes = [piece.numel() for piece in got]
    flat = x.new_empty(sum(sizes))
    dist.all_to_all_single(flat, torch.cat([p.flatten() for p in parts]), sizes, [p.numel() for p in parts])
    got = [piece.view(shape) for piece, shape in zip(flat.split(sizes), shapes, strict=True)]
    return torch.cat(got, 2 if to_tokens else 1)


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seq, to_tokens):
        ctx.seq, ctx.to_tokens = seq, to_tokens
        return exchanged(x, seq, to_tokens)

    @staticmethod
    def backward(ctx, grad):
        return exchanged(grad, ctx.seq, not ctx.to_tokens), None, None


def all_to_all_attention(q, k, v, seq, tile, **rule):
    q, k, v = (Exchange.apply(x, seq, True) for x in (q, k, v))
    return Exchange.apply(blockwise_attention(q, k, v, tile, **rule), seq, False)
