# kind: right
# about: Coordinates and groups from a numbered tensor, as DeviceMesh does it.

# %% solution="coordinates"
def coordinates(rank, shape):
    return tuple(int(c) for c in torch.unravel_index(torch.tensor(rank), shape))

# %% solution="rank_of"
def rank_of(coords, shape):
    return int(torch.arange(math.prod(shape)).reshape(shape)[tuple(coords)])

# %% solution="axis_groups"
def axis_groups(shape):
    numbered = torch.arange(math.prod(shape)).reshape(shape)
    return [numbered.movedim(axis, -1).reshape(-1, shape[axis]).tolist() for axis in range(len(shape))]
