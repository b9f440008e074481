# kind: right
# about: Each part of the tensor by itself, in float64.

# %% solution="quantise"
def parts_of(x, dim, group_size):
    """Index tuples, one for each scale, and the shape of the scales."""
    if group_size is not None:
        if x.shape[-1] % group_size:
            raise ValueError(f"rows of {x.shape[-1]} numbers do not fit groups of {group_size}")
        shape = (*x.shape[:-1], x.shape[-1] // group_size)
        index = torch.arange(x.numel()).view(x.shape).unflatten(-1, (-1, group_size)).reshape(-1, group_size)
    elif dim is not None:
        shape, index = (x.shape[dim],), torch.arange(x.numel()).view(x.shape).transpose(0, dim).flatten(1)
        index = index if x.dim() > 1 else index.view(-1, 1)
    else:
        shape, index = (), torch.arange(x.numel()).view(1, -1)
    return list(index), shape


def quantise(x, bits, dim=None, group_size=None, symmetric=True, scale_dtype=torch.float32):
    if dim is not None and x.dim() == 1:
        index, shape = list(torch.arange(len(x)).view(-1, 1)), (len(x),)
    else:
        index, shape = parts_of(x, dim, group_size)
    flat, dtype = x.double().reshape(-1), torch.int8 if symmetric else torch.uint8
    q, scales, zeros = torch.zeros(x.numel(), dtype=torch.int64), [], []
    top = 2 ** (bits - 1) - 1 if symmetric else 2**bits - 1
    for part in index:
        values = flat[part]
        low = 0.0 if symmetric else min(float(values.min()), 0.0)
        span = float(values.abs().max()) if symmetric else max(float(values.max()), 0.0) - low
        scale = torch.tensor(span / top, dtype=torch.float64).to(scale_dtype)
        zero, step = 0, float(scale)
        if step > 0:
            zero = 0 if symmetric else min(max(round(-low / step), 0), top)
            q[part] = ((values / step).round() + zero).clamp(-top if symmetric else 0, top).long()
        scales.append(scale)
        zeros.append(zero)
    return q.view(x.shape).to(dtype), torch.stack(scales).view(shape), torch.tensor(zeros).view(shape).to(dtype)


def dequantise(q, scale, zero, dim=None, group_size=None):
    out = torch.empty(q.shape)
    if group_size is not None:
        wide = q.unflatten(-1, (-1, group_size)).float()
        return ((wide - zero.float()[..., None]) * scale.float()[..., None]).flatten(-2)
    if dim is None:
        return scale.float() * (q.float() - zero.float())
    for i in range(q.shape[dim]):
        out.select(dim, i).copy_(scale[i].float() * (q.select(dim, i).float() - zero[i].float()))
    return out
