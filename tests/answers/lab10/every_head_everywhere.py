# kind: wrong
# about: Gathers all heads of all tokens on every rank, and keeps its own tokens.
# loses: all_to_all_step
# says: "all_to_all_step": "(p-1)/p of four tensors of q's size"

# %% solution="all_to_all_attention"
class Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, seq):
        ctx.own = zigzag_positions(seq, dist.get_rank(), dist.get_world_size())
        whole = x.new_zeros(*x.shape[:2], seq, x.shape[3])
        whole[:, :, ctx.own] = x
        dist.all_reduce(whole)
        return whole

    @staticmethod
    def backward(ctx, grad):
        whole = grad.contiguous().clone()
        dist.all_reduce(whole)
        return whole[:, :, ctx.own], None


def all_to_all_attention(q, k, v, seq, tile, **rule):
    own = zigzag_positions(seq, dist.get_rank(), dist.get_world_size())
    return blockwise_attention(*(Whole.apply(x, seq) for x in (q, k, v)), tile, **rule)[:, :, own]
