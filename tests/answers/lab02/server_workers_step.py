# kind: right
# about: The server sends the mean gradient, and each worker takes the same step itself.

# %% solution="parameter_server_step"
def parameter_server_step(model, lr):
    rank, world = dist.get_rank(), dist.get_world_size()
    for p in (p for p in model.parameters() if p.requires_grad):
        grad = torch.zeros_like(p) if p.grad is None else p.grad
        if rank == 0:
            parts = [torch.empty_like(grad) for _ in range(1, world)]
            for worker, part in enumerate(parts, 1):
                dist.recv(part, worker)
            grad = sum(parts) / (world - 1)
            for worker in range(1, world):
                dist.send(grad, worker)
        else:
            dist.send(grad, 0)
            grad = torch.empty_like(grad)
            dist.recv(grad, 0)
        with torch.no_grad():
            p -= lr * grad
