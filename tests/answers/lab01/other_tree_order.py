# kind: right
# about: Another binomial tree: neighbours first in the reduction, the far half first in the broadcast.
# loses:

# %% solution="tree_broadcast"
def tree_broadcast(x, src):
    rank, world = dist.get_rank(), dist.get_world_size()
    me, step = (rank - src) % world, 1
    while step < world:
        step *= 2
    while step > 1:
        half = step // 2
        if me % step == 0 and me + half < world:
            dist.isend(x, (rank + half) % world).wait()
        elif me % step == half:
            dist.irecv(x, (rank - half) % world).wait()
        step = half

# %% solution="tree_reduce"
def tree_reduce(x, dst):
    rank, world = dist.get_rank(), dist.get_world_size()
    me, step, parts = (rank - dst) % world, 1, [x]
    while step < world:
        if me % (2 * step) == step:
            dist.send(sum(parts[1:], parts[0]), (rank - step) % world)
            return
        if me + step < world:
            parts.append(torch.empty_like(x))
            dist.recv(parts[-1], (rank + step) % world)
        step *= 2
    x.copy_(sum(parts[1:], parts[0].clone()))
