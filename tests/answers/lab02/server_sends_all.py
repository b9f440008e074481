# kind: wrong
# about: Frozen parameters travel back too.
# loses: server_traffic
# says: "server_traffic": "The server sent"

# %% solution="parameter_server_step"
def parameter_server_step(model, lr):
    rank, workers = dist.get_rank(), range(1, dist.get_world_size())
    for p in model.parameters():
        if p.requires_grad and rank > 0:
            dist.send(torch.zeros_like(p) if p.grad is None else p.grad, 0)
        elif p.requires_grad:
            parts = [torch.empty_like(p.data) for _ in workers]
            for part, worker in zip(parts, workers):
                dist.recv(part, worker)
            p.data -= lr * sum(parts) / len(workers)
    for p in model.parameters():
        for worker in workers if rank == 0 else ():
            dist.send(p.data, worker)
        if rank > 0:
            dist.recv(p.data, 0)
