# kind: wrong
# about: The samples come in their stored order.
# loses: epoch_order
# says: "epoch_order": "shuffle them"

# %% solution="epoch_batches"
def epoch_batches(num_samples, global_batch, rank, world, epoch, seed=0):
    order = torch.arange(num_samples)
    return [step.tensor_split(world)[rank].tolist() for step in order.split(global_batch)]
