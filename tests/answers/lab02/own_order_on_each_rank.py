# kind: wrong
# about: Each rank shuffles with its own random numbers: samples come twice, others never.
# loses: epoch_once, epoch_order
# says: "epoch_once": "Do all ranks cut the same order?"

# %% solution="epoch_batches"
def epoch_batches(num_samples, global_batch, rank, world, epoch, seed=0):
    order = torch.randperm(num_samples)
    return [step.tensor_split(world)[rank].tolist() for step in order.split(global_batch)]
