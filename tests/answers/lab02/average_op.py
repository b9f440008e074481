# kind: right
# about: ReduceOp.AVG on one flat tensor.

# %% solution="average_gradients"
def average_gradients(model):
    params = [p for p in model.parameters() if p.requires_grad]
    flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in params])
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)
    for p, part in zip(params, flat.split([p.numel() for p in params])):
        p.grad = part.reshape(p.shape)
