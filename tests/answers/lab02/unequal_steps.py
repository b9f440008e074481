# kind: wrong
# about: D15: each rank cuts its own share into steps: ranks have unequal numbers of steps.
# loses: epoch_once
# says: "epoch_once": "ranks wait for each other for ever"

# %% solution="epoch_batches"
def epoch_batches(num_samples, global_batch, rank, world, epoch, seed=0):
    generator = torch.Generator().manual_seed(1009 * seed + epoch)
    mine = torch.randperm(num_samples, generator=generator)[rank::world].tolist()
    size = max(global_batch // world, 1)
    return [mine[i : i + size] for i in range(0, len(mine), size)]
