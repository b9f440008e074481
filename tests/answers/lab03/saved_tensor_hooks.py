# kind: right
# about: By hooks on saved tensors: the first one asked for runs fn again and collects them all.

# %% solution="checkpoint"
def checkpoint(fn, *args):
    if not torch.is_grad_enabled():
        return fn(*args)
    state, packed, again = torch.get_rng_state(), [], []

    def pack(tensor):
        packed.append(None)
        return len(packed) - 1

    def unpack(number):
        if not again:
            with torch.enable_grad(), torch.random.fork_rng(devices=[]):
                torch.set_rng_state(state)
                with torch.autograd.graph.saved_tensors_hooks(lambda t: again.append(t.detach()), lambda n: None):
                    fn(*[a.detach().requires_grad_(a.requires_grad) if torch.is_tensor(a) else a for a in args])
        tensor, again[number] = again[number], None
        if all(t is None for t in again):
            args_done.append(True)
        return tensor

    args_done = []
    with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
        return fn(*args)
