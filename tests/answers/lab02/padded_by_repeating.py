# kind: wrong
# about: D13: repeats samples until the shares are equal, as DistributedSampler does.
# loses: epoch_once
# says: "epoch_once": "come twice: nothing is repeated"

# %% solution="epoch_batches"
def epoch_batches(num_samples, global_batch, rank, world, epoch, seed=0):
    generator = torch.Generator().manual_seed(1009 * seed + epoch)
    order = torch.randperm(num_samples, generator=generator).tolist()
    steps = []
    for start in range(0, num_samples, global_batch):
        step = order[start : start + global_batch]
        while len(step) % world:
            step.append(order[len(step) % num_samples])
        steps.append(step[rank::world])
    return steps
