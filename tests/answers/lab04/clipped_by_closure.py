# kind: right
# about: No class: a function that makes a namespace with a step; reads the gradients through the pieces each time.

# %% solution="clipped"
def clipped(make_optimizer, max_norm):
    from types import SimpleNamespace

    def make(decayed, rest):
        inner = make_optimizer(decayed, rest)

        def step():
            grads = [piece.grad for pieces in (rest, decayed) for piece in pieces if piece.numel()]
            clip_grad_norm(grads, [], max_norm)
            inner.step()

        return SimpleNamespace(step=step)

    return make
