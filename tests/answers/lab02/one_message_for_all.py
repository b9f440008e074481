# kind: right
# about: Gradients, loss and count travel in one flat tensor; micro-batches are joined where they fit.

# %% solution="accumulate"
def accumulate(model, micro_batches):
    tokens, targets = (torch.cat(parts) for parts in zip(*micro_batches))
    loss = cross_entropy(model(tokens), targets, ignore_index=-100, reduction="sum")
    params = [p for p in model.parameters() if p.requires_grad]
    parts = torch.autograd.grad(loss, params)
    numbers = torch.stack([loss.detach(), (targets >= 0).sum().float()])
    flat = torch.cat([numbers, *[part.flatten() for part in parts]])
    dist.all_reduce(flat)
    flat[[0, *range(2, len(flat))]] /= max(flat[1].item(), 1)
    for p, part in zip(params, flat[2:].split([p.numel() for p in params])):
        p.grad = part.view_as(p).clone()
    return flat[0].item()
