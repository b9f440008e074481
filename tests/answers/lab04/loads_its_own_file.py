# kind: wrong
# about: Each new rank loads what the old rank of its number had saved.
# loses: reshard
# says: "reshard": "loaded by 2"

# %% solution="load_state"
def load_state(saved, ranks, rank):
    numel = sum(len(part["param"]) for part in saved)
    length = -(-numel // ranks)
    mine = saved[rank % len(saved)]
    return {name: F.pad(t, (0, max(length - len(t), 0)))[:length] if t.dim() else t for name, t in mine.items()}
