# kind: right
# about: Reduce-scatter and all-gather in one loop; always on a flat copy that is copied back; returns x.
# loses:

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    rank, world = dist.get_rank(), dist.get_world_size()
    flat = x.flatten().clone()
    chunks = flat.tensor_split(world)
    for step in range(2 * (world - 1)):
        send_index, recv_index = (rank - step) % world, (rank - step - 1) % world
        incoming = torch.empty_like(chunks[recv_index])
        request = dist.isend(chunks[send_index].clone(), (rank + 1) % world)
        dist.recv(incoming, (rank - 1) % world)
        request.wait()
        if step < world - 1:
            chunks[recv_index].add_(incoming)
        else:
            chunks[recv_index].copy_(incoming)
    x.copy_(flat.view(x.shape))
    return x
