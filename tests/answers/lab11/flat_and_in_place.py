# kind: right
# about: All experts in one flat message; gradients written in place where there are any.

# %% solution="average_gradients"
def average_gradients(router, experts, tokens, replicas=None):
    every = [router, *experts.values()]
    for tensor in every:
        if tensor.grad is None:
            tensor.grad = torch.zeros_like(tensor)
    shared = torch.cat([router.grad.flatten(), torch.tensor([float(tokens)])])
    dist.all_reduce(shared)
    total = shared[-1].item()
    own = torch.cat([tensor.grad.flatten() for tensor in experts.values()])
    dist.all_reduce(own, group=replicas)
    flat = torch.cat([shared[:-1], own]) / total
    for tensor, part in zip(every, flat.split([tensor.numel() for tensor in every]), strict=True):
        tensor.grad.copy_(part.view_as(tensor))
