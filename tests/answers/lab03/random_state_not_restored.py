# kind: wrong
# about: A01: the second run draws other dropout masks.
# loses: checkpoint_random
# says: "checkpoint_random": "the second run must draw the same mask"

# %% solution="checkpoint"
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
        with torch.enable_grad():
            out = ctx.fn(*args)
        torch.autograd.backward(out, grad)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in args])


def checkpoint(fn, *args):
    return Checkpoint.apply(fn, torch.zeros(1, requires_grad=True), *args)
