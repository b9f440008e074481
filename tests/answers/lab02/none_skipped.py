# kind: wrong
# about: D09: a rank that did not use a layer leaves out its all-reduce; the others wait, or other tensors meet.
# loses: average_special

# %% solution="average_gradients"
def average_gradients(model):
    for p in model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
