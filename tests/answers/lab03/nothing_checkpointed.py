# kind: wrong
# about: Runs fn and keeps everything.
# loses: checkpoint_memory, checkpoint_cost
# says: "checkpoint_memory": "bytes are held after the forward pass. The blocks"
# says: "checkpoint_cost": "times in the forward pass and"

# %% solution="checkpoint"
def checkpoint(fn, *args):
    return fn(*args)
