# kind: right
# about: A closure carries what is no tensor; only tensors are arguments of the Function.

# %% solution="checkpoint"
class Recompute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, run, link, *tensors):
        ctx.run, ctx.state = run, torch.get_rng_state()
        ctx.save_for_backward(*tensors)
        return run(*tensors)

    @staticmethod
    def backward(ctx, grad):
        inputs = [t.detach() for t in ctx.saved_tensors]
        for new, old in zip(inputs, ctx.saved_tensors):
            new.requires_grad = old.requires_grad
        keep = torch.get_rng_state()
        try:
            torch.set_rng_state(ctx.state)
            with torch.set_grad_enabled(True):
                result = ctx.run(*inputs)
        finally:
            torch.set_rng_state(keep)
        result.backward(grad)
        return None, None, *(t.grad for t in inputs)


def checkpoint(fn, *args):
    def run(*tensors):
        left = list(tensors)
        return fn(*[left.pop(0) if torch.is_tensor(a) else a for a in rest])

    rest = [torch.empty(0) if torch.is_tensor(a) else a for a in args]
    return Recompute.apply(run, torch.ones((), requires_grad=True), *[a for a in args if torch.is_tensor(a)])
