# kind: right
# about: A ring of sends and receives, as in lab 01.

# %% solution="average_gradients"
def average_gradients(model):
    rank, world = dist.get_rank(), dist.get_world_size()
    params = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in params])
    chunks = flat.tensor_split(world)
    for step in range(2 * (world - 1)):
        out, into = chunks[(rank - step) % world], chunks[(rank - step - 1) % world]
        arriving = torch.empty_like(into)
        request = dist.isend(out.clone(), (rank + 1) % world)
        dist.recv(arriving, (rank - 1) % world)
        request.wait()
        into.copy_(into + arriving if step < world - 1 else arriving)
    flat /= world
    for p, part in zip(params, flat.split([p.numel() for p in params])):
        p.grad = part.reshape(p.shape)
