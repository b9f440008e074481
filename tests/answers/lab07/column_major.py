# kind: wrong
# about: The first axis counts fastest: the mesh is transposed.
# loses: coordinates_values
# says: "coordinates_values": "here the first axis counts fastest"

# %% solution="coordinates"
def coordinates(rank, shape):
    coords = []
    for size in shape:
        rank, coord = divmod(rank, size)
        coords.append(coord)
    return tuple(coords)
