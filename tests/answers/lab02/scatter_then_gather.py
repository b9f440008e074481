# kind: right
# about: reduce_scatter and all_gather of a padded buffer.

# %% solution="average_gradients"
def average_gradients(model):
    world = dist.get_world_size()
    params = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in params])
    padded = torch.cat([flat, flat.new_zeros(-len(flat) % world)])
    piece = padded.new_empty(len(padded) // world)
    dist.reduce_scatter_single(piece, padded)
    dist.all_gather_single(padded, piece / world)
    for p, part in zip(params, padded[: len(flat)].split([p.numel() for p in params])):
        p.grad = part.reshape(p.shape)
