# kind: wrong
# about: reduce and broadcast in place of messages.
# loses: server_traffic
# says: "server_traffic": "only send and receive are allowed"

# %% solution="parameter_server_step"
def parameter_server_step(model, lr):
    for p in model.parameters():
        if p.requires_grad:
            grad = torch.zeros_like(p) if p.grad is None or dist.get_rank() == 0 else p.grad.clone()
            dist.reduce(grad, 0)
            p.data -= lr * grad / (dist.get_world_size() - 1)
            dist.broadcast(p.data, 0)
