# kind: wrong
# about: Written for three axes; a mesh may have any number.
# loses: coordinates_values
# says: "coordinates_values": "ValueError"

# %% solution="coordinates"
def coordinates(rank, shape):
    _, b, c = shape
    return rank // (b * c), rank // c % b, rank % c
