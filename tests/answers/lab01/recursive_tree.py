# kind: right
# about: The tree by recursion: halve the ranks, hand over, go on in both halves.
# loses:

# %% solution="tree_broadcast"
def tree_broadcast(x, src):
    rank, world = dist.get_rank(), dist.get_world_size()

    def spread(low, high):  # the first rank of low..high holds the data
        if high - low < 2:
            return
        me, middle = (rank - src) % world, (low + high + 1) // 2
        if me == low:
            dist.send(x, (middle + src) % world)
        if me == middle:
            dist.recv(x, (low + src) % world)
        if me < middle:
            spread(low, middle)
        else:
            spread(middle, high)

    spread(0, world)

# %% solution="tree_reduce"
def tree_reduce(x, dst):
    rank, world = dist.get_rank(), dist.get_world_size()
    me, total = (rank - dst) % world, x if rank == dst else x.clone()

    def collect(low, high):
        if high - low < 2:
            return
        middle = (low + high + 1) // 2
        if me < middle:
            collect(low, middle)
        else:
            collect(middle, high)
        if me == middle:
            dist.send(total, (low + dst) % world)
        if me == low:
            part = torch.empty_like(total)
            dist.recv(part, (middle + dst) % world)
            total.add_(part)

    collect(0, world)
