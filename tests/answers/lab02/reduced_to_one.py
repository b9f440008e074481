# kind: wrong
# about: reduce in place of all_reduce: only rank 0 has the sum.
# loses: average_values, average_special, average_traffic
# says: "average_values": "rank 1, step 0"
# says: "average_traffic": "0.5 times the"

# %% solution="average_gradients"
def average_gradients(model: nn.Module) -> None:
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
            dist.reduce(p.grad, 0)
            p.grad /= dist.get_world_size()
