# kind: wrong
# about: Saves all arguments as tensors: None and numbers fail.
# loses: checkpoint_arguments
# says: "checkpoint_arguments": "TypeError: save_for_backward can only save variables, but argument"

# %% solution="checkpoint"
class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, link, *args):
        ctx.fn, ctx.state = fn, torch.get_rng_state()
        ctx.save_for_backward(*args)
        with torch.no_grad():
            return fn(*args)

    @staticmethod
    def backward(ctx, grad):
        args = [a.detach().requires_grad_(a.requires_grad) for a in ctx.saved_tensors]
        with torch.enable_grad(), torch.random.fork_rng(devices=[]):
            torch.set_rng_state(ctx.state)
            out = ctx.fn(*args)
        torch.autograd.backward(out, grad)
        return (None, None, *[a.grad for a in args])


def checkpoint(fn, *args):
    return Checkpoint.apply(fn, torch.zeros(1, requires_grad=True), *args)
