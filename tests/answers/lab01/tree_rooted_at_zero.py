# kind: wrong
# about: tree_broadcast numbers the ranks from 0 instead of from src.
# loses: tree_values
# says: "tree_values": "root 1"

# %% solution="tree_broadcast"
def tree_broadcast(x, src):
    rank, world = dist.get_rank(), dist.get_world_size()
    have = 1
    while have < world:
        if rank < have and rank + have < world:
            dist.send(x, rank + have)
        elif have <= rank < 2 * have:
            dist.recv(x, rank - have)
        have *= 2
