# kind: right
# about: Saves where each piece begins, and puts the pieces there.

# %% solution="save_state"
def save_state(state, numel, ranks, rank):
    start = rank * -(-numel // ranks)
    saved = {"start": start, "numel": numel, "once": {}, "parts": {}}
    for name, tensor in state.items():
        if tensor.dim():
            saved["parts"][name] = tensor[: max(numel - start, 0)].clone()
        else:
            saved["once"][name] = tensor
    return saved


# %% solution="load_state"
def load_state(saved, ranks, rank):
    numel = saved[0]["numel"]
    length = -(-numel // ranks)
    state = dict(saved[0]["once"])
    for name in saved[0]["parts"]:
        whole = torch.zeros(length * ranks)
        for part in saved:
            piece = part["parts"][name]
            whole[part["start"] : part["start"] + len(piece)] = piece
        state[name] = whole[rank * length : (rank + 1) * length].clone()
    return state
