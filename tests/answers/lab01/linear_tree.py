# kind: wrong
# about: tree_broadcast sends from the root to one rank after the other: p-1 rounds.
# loses: tree_rounds
# says: "tree_rounds": "tree_broadcast on 4 ranks took 3 rounds"

# %% solution="tree_broadcast"
def tree_broadcast(x, src):
    broadcast(x, src)
