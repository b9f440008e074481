# kind: wrong
# about: Runs fn with a graph, keeps it in ctx, and backpropagates through it: no memory is saved.
# loses: checkpoint_memory, checkpoint_cost
# says: "checkpoint_memory": "bytes are held after the forward pass. The blocks"
# says: "checkpoint_cost": "times in the forward pass and"

# %% solution="checkpoint"
class Checkpoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, link, *args):
        ctx.args = [a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in args]
        with torch.enable_grad():
            ctx.out = fn(*ctx.args)
        return ctx.out.detach()

    @staticmethod
    def backward(ctx, grad):
        torch.autograd.backward(ctx.out, grad)
        return (None, None, *[a.grad if torch.is_tensor(a) else None for a in ctx.args])


def checkpoint(fn, *args):
    return Checkpoint.apply(fn, torch.zeros(1, requires_grad=True), *args)
