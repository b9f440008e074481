# kind: wrong
# about: D14: the epoch is ignored.
# loses: epoch_order
# says: "epoch_order": "epochs 0 and 1 have the same order"

# %% solution="epoch_batches"
def epoch_batches(
    num_samples: int, global_batch: int, rank: int, world: int, epoch: int, seed: int = 0
) -> list[list[int]]:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(num_samples, generator=generator)
    return [step.tensor_split(world)[rank].tolist() for step in order.split(global_batch)]
