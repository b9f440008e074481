# kind: right
# about: Python's own generator, every p-th sample of a step, tuples of lists.

# %% solution="epoch_batches"
def epoch_batches(num_samples, global_batch, rank, world, epoch, seed=0):
    import random

    order = list(range(num_samples))
    random.Random(f"{seed} {epoch}").shuffle(order)
    starts = range(0, num_samples, global_batch)
    return [order[start : start + global_batch][rank::world] for start in starts]
