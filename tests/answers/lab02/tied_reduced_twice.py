# kind: wrong
# about: Walks through the modules: the shared weight is averaged twice, which changes nothing but the bytes.
# loses: average_traffic
# says: "average_traffic": "Is something sent more than once"

# %% solution="average_gradients"
def average_gradients(model):
    for module in model.modules():
        for p in module.parameters(recurse=False):
            if p.requires_grad:
                p.grad = torch.zeros_like(p) if p.grad is None else p.grad
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()
