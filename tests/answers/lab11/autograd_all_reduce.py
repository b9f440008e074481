# kind: right
# about: torch's all-reduce with a backward pass, whose sum over the ranks is divided away again.

# %% solution="balance"
import torch.distributed.nn.functional as collectives


class OncePerRank(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, ranks):
        ctx.ranks = ranks
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad / ctx.ranks, None


def over_ranks(x, group):
    group = group or dist.group.WORLD
    return OncePerRank.apply(collectives.all_reduce(x.contiguous(), group=group), dist.get_world_size(group))


def balance_loss(logits, ids, group=None):
    experts = logits.shape[-1]
    tokens = over_ranks(torch.tensor(float(len(logits))), group)
    share = over_ranks(F.one_hot(ids, experts).sum((0, 1)).float(), group) / tokens / ids.shape[-1]
    probs = over_ranks(logits.float().softmax(-1).sum(0), group) / tokens
    return experts * torch.dot(share, probs)


def z_loss(logits, group=None):
    tokens = over_ranks(torch.tensor(float(len(logits))), group)
    return over_ranks((torch.logsumexp(logits.float(), -1) ** 2).sum(), group) / tokens
