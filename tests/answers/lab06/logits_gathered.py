# kind: wrong
# about: Gathers the logits and calls F.cross_entropy: right, and V / p numbers a token too many.
# loses: vocab_traffic
# says: "vocab_traffic": "Nothing has to be gathered here"

# %% solution="vocab_cross_entropy"
class GatherLogits(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, vocab_size, group):
        ranks = dist.get_world_size(group)
        ctx.sizes, ctx.rank = [len(part) for part in torch.arange(vocab_size).tensor_split(ranks)], dist.get_rank(group)
        padded = logits.new_zeros(*logits.shape[:-1], max(ctx.sizes))
        padded[..., : logits.shape[-1]] = logits
        parts = [torch.empty_like(padded) for _ in range(ranks)]
        dist.all_gather(parts, padded, group=group)
        return torch.cat([part[..., :size] for part, size in zip(parts, ctx.sizes, strict=True)], -1)

    @staticmethod
    def backward(ctx, grad):
        return grad.split(ctx.sizes, -1)[ctx.rank], None, None


def vocab_cross_entropy(logits, targets, start, vocab_size, label_smoothing=0.0, group=None):
    whole = GatherLogits.apply(logits, vocab_size, group)
    return F.cross_entropy(whole.flatten(0, 1), targets.flatten(), label_smoothing=label_smoothing)
