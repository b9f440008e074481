# kind: right
# about: The loss as a hand-written autograd function, with separate all-reduces and a comparison with column numbers.

# %% solution="vocab_cross_entropy"
class VocabLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, targets, start, vocab_size, smoothing, group):
        top = logits.amax(-1)
        dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
        exps = (logits - top.unsqueeze(-1)).exp()
        columns = torch.arange(start, start + logits.shape[-1])
        hit = (targets.unsqueeze(-1) == columns).to(logits.dtype)
        sums, picked, total = exps.sum(-1), (hit * logits).sum(-1), logits.sum(-1)
        for part in (sums, picked, total):
            dist.all_reduce(part, group=group)
        counted = (targets != -100).to(logits.dtype)
        ctx.share = counted / counted.sum()
        ctx.grad = exps / sums.unsqueeze(-1) - (1 - smoothing) * hit - smoothing / vocab_size
        losses = sums.log() + top - (1 - smoothing) * picked - smoothing * total / vocab_size
        return (losses * ctx.share).sum()

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.grad * ctx.share.unsqueeze(-1), None, None, None, None, None


def vocab_cross_entropy(logits, targets, start, vocab_size, label_smoothing=0.0, group=None):
    return VocabLoss.apply(logits, targets, start, vocab_size, label_smoothing, group)
