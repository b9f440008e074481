# kind: wrong
# about: Gradients are summed and never divided.
# loses: average_values, average_special
# says: "average_values": "2 times what is wanted: summed over the 2 ranks but never divided"
# says: "average_special": "summed over the 2 ranks, and never divided by 2"

# %% solution="average_gradients"
def average_gradients(model: nn.Module) -> None:
    for p in model.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p) if p.grad is None else p.grad.contiguous()
            dist.all_reduce(p.grad)
