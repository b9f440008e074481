# kind: wrong
# about: unflatten gives copies, so a write to them never reaches the flat vector.
# loses: flatten_values, zero3_values, zero3_rest, zero3_peak
# says: "flatten_values": "not views"

# %% solution="unflatten"
def unflatten(flat, shapes):
    sizes = [math.prod(shape) for shape in shapes]
    pieces = flat[: sum(sizes)].split(sizes)
    return [piece.clone().view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
