# kind: wrong
# about: A flat vector has one dimension, so nothing tells a bias from a matrix: all of it is decayed.
# loses: segments_owned, zero1_values, zero2_values, zero3_values
# says: "segments_owned": "parameters with two dimensions or more belong to decayed"
# says: "zero1_values": "weight decay reached every element"

# %% solution="owned_segments"
def owned_segments(params, shard, grad, rank):
    pieces, begin, place = [], rank * shard.numel(), 0
    for param in params:
        start, stop = max(place, begin) - begin, min(place + param.numel(), begin + shard.numel()) - begin
        if start < stop:
            piece = nn.Parameter(shard[start:stop])
            piece.grad = grad[start:stop]
            pieces.append(piece)
        place += param.numel()
    return pieces, []
