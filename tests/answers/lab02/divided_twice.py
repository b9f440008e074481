# kind: wrong
# about: D11: divided before the all-reduce and again after it.
# loses: average_values, average_special
# says: "average_values": "1/2 of what is wanted: divided by the 2 ranks twice"
# says: "average_special": "divided by the 2 ranks twice"

# %% solution="average_gradients"
def average_gradients(model: nn.Module) -> None:
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
            p.grad /= dist.get_world_size()
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()
