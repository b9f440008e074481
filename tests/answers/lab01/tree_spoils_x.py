# kind: wrong
# about: tree_reduce adds up in x on every rank, so x changes where it must not.
# loses: tree_values
# says: "tree_values": "must stay unchanged"

# %% solution="tree_reduce"
def tree_reduce(x, dst):
    rank, world = dist.get_rank(), dist.get_world_size()
    me, step = (rank - dst) % world, 1
    while step < world:
        if me % (2 * step) == step:
            dist.send(x, (rank - step) % world)
            return
        if me + step < world:
            part = torch.empty_like(x)
            dist.recv(part, (rank + step) % world)
            x += part
        step *= 2
