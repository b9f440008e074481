# kind: wrong
# about: D10: tokens are counted over the rank's own micro-batches only.
# loses: accumulate_values
# says: "accumulate_values": "the mean of the ranks' own token means"

# %% solution="accumulate"
def accumulate(model, micro_batches):
    world, total = dist.get_world_size(), torch.zeros(())
    count = sum(int((targets != -100).sum()) for _, targets in micro_batches)
    for tokens, targets in micro_batches:
        loss = cross_entropy(model(tokens), targets, ignore_index=-100, reduction="sum")
        loss = loss / max(count, 1) / world
        loss.backward()
        total += loss.detach()
    dist.all_reduce(total)
    for p in model.parameters():
        if p.requires_grad:
            dist.all_reduce(p.grad)
    return float(total)
