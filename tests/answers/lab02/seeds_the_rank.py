# kind: wrong
# about: D17: seeds the rank's own random numbers: dropout masks would be equal on all ranks.
# loses: epoch_order
# says: "epoch_order": "dropout masks would be equal on all ranks"

# %% solution="epoch_batches"
def epoch_batches(num_samples, global_batch, rank, world, epoch, seed=0):
    torch.manual_seed(1009 * seed + epoch)
    order = torch.randperm(num_samples)
    return [step.tensor_split(world)[rank].tolist() for step in order.split(global_batch)]
