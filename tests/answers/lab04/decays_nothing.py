# kind: wrong
# about: Asks the pieces for their dimensions, and they have one each: nothing is decayed.
# loses: segments_owned, zero1_values, zero2_values, zero3_values
# says: "segments_owned": "parameters with two dimensions or more belong to decayed"
# says: "zero1_values": "no element was decayed; matrices should be"

# %% solution="owned_segments"
def owned_segments(params, shard, grad, rank):
    decayed, rest, begin, place = [], [], rank * shard.numel(), 0
    for param in params:
        start, stop = max(place, begin) - begin, min(place + param.numel(), begin + shard.numel()) - begin
        if start < stop:
            piece = nn.Parameter(shard[start:stop])
            piece.grad = grad[start:stop]
            (decayed if piece.dim() >= 2 else rest).append(piece)
        place += param.numel()
    return decayed, rest
