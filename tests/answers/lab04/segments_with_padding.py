# kind: wrong
# about: The last piece of a shard takes the padding with it.
# loses: segments_owned
# says: "segments_owned": "Is there padding in it?"

# %% solution="owned_segments"
def owned_segments(params, shard, grad, rank):
    decayed, rest, begin, place = [], [], rank * shard.numel(), 0
    total = sum(param.numel() for param in params)
    for param in params:
        start, stop = max(place, begin) - begin, min(place + param.numel(), begin + shard.numel()) - begin
        place += param.numel()
        if place == total:
            stop = shard.numel()
        if start < stop:
            piece = nn.Parameter(shard[start:stop])
            piece.grad = grad[start:stop]
            (decayed if param.dim() >= 2 else rest).append(piece)
    return decayed, rest
