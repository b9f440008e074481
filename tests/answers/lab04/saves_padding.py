# kind: wrong
# about: Saves the whole shard, padding too, and joins them (Z08).
# loses: reshard
# says: "reshard": "padding of 4 ranks was taken for data"

# %% solution="save_state"
def save_state(state, numel, ranks, rank):
    return dict(state)


# %% solution="load_state"
def load_state(saved, ranks, rank):
    state = {}
    for name, tensor in saved[0].items():
        if tensor.dim():
            whole = torch.cat([part[name] for part in saved])
            tensor = F.pad(whole, (0, -len(whole) % ranks)).chunk(ranks)[rank].clone()
        state[name] = tensor
    return state
