# kind: wrong
# about: New tensors are bound to names and the stage keeps its own.
# loses: load_continues
# says: "load_continues": "nothing was loaded"

# %% solution="load"
def load(stage, optimizer, mesh, saved):
    for name, parameter in stage.named_parameters():
        parameter = saved[name]
