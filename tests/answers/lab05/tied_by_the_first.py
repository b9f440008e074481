# kind: right
# about: The last stage sends its part, the first adds and sends the sum back.
# loses:

# %% solution="sum_tied_gradient"
def sum_tied_gradient(stages, last):
    rank, home = dist.get_rank(), (last - 1) % dist.get_world_size()
    if home == 0:
        if rank == 0 and stages[0].embedding.weight is not stages[last - 1].head.weight:
            total = stages[0].embedding.weight.grad + stages[last - 1].head.weight.grad
            stages[0].embedding.weight.grad, stages[last - 1].head.weight.grad = total, total.clone()
    elif rank == 0:
        weight = stages[0].embedding.weight
        part = torch.zeros_like(weight)
        dist.recv(part, home)
        weight.grad = weight.grad + part
        dist.send(weight.grad, home)
    elif rank == home:
        weight = stages[last - 1].head.weight
        dist.send(weight.grad, 0)
        dist.recv(weight.grad, 0)
