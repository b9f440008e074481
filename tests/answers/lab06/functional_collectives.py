# kind: right
# about: The embedding with a functional collective; its gradient goes past it, by a detached difference.

# %% solution="vocab_embedding"
def vocab_embedding(tokens, weight, start, group=None):
    from torch.distributed import _functional_collectives as funcol

    columns = torch.arange(start, start + weight.shape[0])
    own = (tokens.unsqueeze(-1) == columns).to(weight.dtype) @ weight
    total = funcol.wait_tensor(funcol.all_reduce(own.detach(), "sum", group or dist.group.WORLD))
    return own + (total - own.detach())
