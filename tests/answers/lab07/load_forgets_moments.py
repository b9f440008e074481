# kind: wrong
# about: Parameters are loaded, the state of Adam is not: right after it all is well, and the next step is another.
# loses: load_continues
# says: "load_continues": "what a new Adam would give"

# %% edit="load"
# replace
    optimizer.load_state(state)
# by
    zeros = {key: torch.zeros_like(value) for key, value in state.items()}
    optimizer.load_state(zeros)
