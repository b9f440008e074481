# kind: wrong
# about: Pads all pieces to the largest: right, and more bytes than rows.
# loses: moe_traffic
# says: "moe_traffic": "padded, or sent twice?"

# %% solution="exchange"
class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, rows, send, recv, group):
        ctx.back = recv, send, group
        return padded(rows, send, recv, group)

    @staticmethod
    def backward(ctx, grad):
        return padded(grad, *ctx.back), None, None, None


def padded(rows, send, recv, group):
    most = torch.tensor(max(send))
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=group)
    buffer = rows.new_zeros(len(send), int(most), *rows.shape[1:])
    for piece, part in zip(buffer, rows.split(send), strict=True):
        piece[: len(part)] = part
    out = torch.empty_like(buffer)
    dist.all_to_all_single(out, buffer, group=group)
    return torch.cat([piece[:size] for piece, size in zip(out, recv, strict=True)])


def exchange(rows, send, recv, group=None):
    return Exchange.apply(rows, send, recv, group)
