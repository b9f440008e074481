# kind: wrong
# about: tree_reduce passes the partial sum along a chain: p-1 rounds.
# loses: tree_rounds
# says: "tree_rounds": "tree_reduce on 4 ranks took 3 rounds"

# %% solution="tree_reduce"
def tree_reduce(x, dst):
    rank, world = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % world
    total = x if me == 0 else x.clone()
    if me + 1 < world:
        part = torch.empty_like(x)
        dist.recv(part, (rank + 1) % world)
        total += part
    if me > 0:
        dist.send(total, (rank - 1) % world)
