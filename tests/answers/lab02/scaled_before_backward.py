# kind: right
# about: Counts first, scales each loss before backward so that the mean over ranks is right, and uses average_gradients.

# %% solution="accumulate"
def accumulate(model, micro_batches):
    count = torch.tensor(sum(int((targets != -100).sum()) for _, targets in micro_batches))
    dist.all_reduce(count)
    scale = dist.get_world_size() / max(int(count), 1)
    mean = torch.zeros(())
    for tokens, targets in micro_batches:
        loss = scale * cross_entropy(model(tokens), targets, ignore_index=-100, reduction="sum")
        loss.backward()
        mean += loss.detach() / dist.get_world_size()
    average_gradients(model)
    dist.all_reduce(mean)
    return mean.item()
