# kind: wrong
# about: D10: the mean of the micro-batches' own means: tokens weigh unequally.
# loses: accumulate_values
# says: "accumulate_values": "the mean of the micro-batches' own means"

# %% solution="accumulate"
def accumulate(model, micro_batches):
    world, total = dist.get_world_size(), torch.zeros(())
    for tokens, targets in micro_batches:
        loss = cross_entropy(model(tokens), targets, ignore_index=-100, reduction="sum")
        loss = loss / (targets != -100).sum().clamp(min=1) / len(micro_batches) / world
        loss.backward()
        total += loss.detach()
    dist.all_reduce(total)
    for p in model.parameters():
        if p.requires_grad:
            dist.all_reduce(p.grad)
    return float(total)
