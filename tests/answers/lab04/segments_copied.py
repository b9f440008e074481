# kind: wrong
# about: The pieces are copies: the optimizer updates something that nobody looks at.
# loses: segments_owned, zero1_values, zero1_bytes, zero2_bytes, zero2_values, zero3_values, zero3_rest, zero3_peak, clip_step
# says: "segments_owned": "does not reach `shard`"
# says: "zero1_values": "none has changed"
# says: "zero3_values": "none has changed"
# says: "zero3_rest": "holds 4.85 bytes a parameter; about 4 is enough"

# %% solution="owned_segments"
def owned_segments(params, shard, grad, rank):
    decayed, rest, begin, place = [], [], rank * shard.numel(), 0
    for param in params:
        start, stop = max(place, begin) - begin, min(place + param.numel(), begin + shard.numel()) - begin
        if start < stop:
            piece = nn.Parameter(shard[start:stop].clone())
            piece.grad = grad[start:stop]
            (decayed if param.dim() >= 2 else rest).append(piece)
        place += param.numel()
    return decayed, rest
