# kind: wrong
# about: Holds every second run's result in a list: its graph is never freed.
# loses: checkpoint_memory
# says: "checkpoint_memory": "bytes are still held; the gradients are"

# %% solution="checkpoint"
kept = []


class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, link, *args):
        ctx.fn, ctx.state, ctx.args = fn, torch.get_rng_state(), [None if torch.is_tensor(a) else a for a in args]
        ctx.where = [i for i, a in enumerate(args) if torch.is_tensor(a)]
        ctx.save_for_backward(*[args[i] for i in ctx.where])
        with torch.no_grad():
            return fn(*args)

    @staticmethod
    def backward(ctx, grad):
        args = list(ctx.args)
        for i, tensor in zip(ctx.where, ctx.saved_tensors):
            args[i] = tensor.detach().requires_grad_(tensor.requires_grad)
        before = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            out = ctx.fn(*args)
        torch.set_rng_state(before)
        torch.autograd.backward(out, grad, retain_graph=True)
        kept.append(out)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def checkpoint(fn, *args):
    return Checkpoint.apply(fn, torch.zeros(1, requires_grad=True), *args)
