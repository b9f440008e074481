# kind: right
# about: isend and irecv for each parameter, whichever worker comes first.

# %% solution="parameter_server_step"
def parameter_server_step(model, lr):
    rank, world = dist.get_rank(), dist.get_world_size()
    params = [p for p in model.parameters() if p.requires_grad]
    if rank:
        sends = [dist.isend(torch.zeros_like(p) if p.grad is None else p.grad.clone(), 0) for p in params]
        for work in sends:
            work.wait()
        for work in [dist.irecv(p.data, 0) for p in params]:
            work.wait()
        return
    parts = {worker: [torch.empty_like(p.data) for p in params] for worker in range(1, world)}
    works = [dist.irecv(part, worker) for worker, own in parts.items() for part in own]
    for work in works:
        work.wait()
    for k, p in enumerate(params):
        p.data.sub_(torch.stack([own[k] for own in parts.values()]).mean(0), alpha=lr)
    works = [dist.isend(p.data, worker) for worker in parts for p in params]
    for work in works:
        work.wait()
