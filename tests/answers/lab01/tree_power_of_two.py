# kind: wrong
# about: tree_reduce forgets ranks that have no full subtree: wrong unless p is a power of two.
# loses: tree_values, tree_rounds
# says: "tree_values": "lack rank 2's share of the sum"
# says: "tree_rounds": "a tree sends the tensor 4 times"

# %% solution="tree_reduce"
def tree_reduce(x, dst):
    rank, world = dist.get_rank(), dist.get_world_size()
    me = (rank - dst) % world
    total = x if me == 0 else x.clone()
    step = 1
    while 2 * step <= world:
        if me % (2 * step) == step and me // (2 * step) * 2 * step + 2 * step <= world:
            dist.send(total, (rank - step) % world)
            return
        if me % (2 * step) == 0 and me + 2 * step <= world:
            part = torch.empty_like(x)
            dist.recv(part, (rank + step) % world)
            total += part
        step *= 2
