# kind: wrong
# about: D12: the last, smaller step is dropped.
# loses: epoch_once
# says: "epoch_once": "steps, wanted"

# %% solution="epoch_batches"
def epoch_batches(
    num_samples: int, global_batch: int, rank: int, world: int, epoch: int, seed: int = 0
) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    order = torch.randperm(num_samples, generator=generator)
    return [step.tensor_split(world)[rank].tolist() for step in order.split(global_batch) if len(step) == global_batch]
