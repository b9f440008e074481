# kind: wrong
# about: Calls dist.reduce_scatter.
# loses: reduce_scatter_values
# says: "reduce_scatter_values": "called the built-in reduce_scatter"

# %% solution="reduce_scatter"
def reduce_scatter(x):
    pieces = [piece.clone() for piece in x.tensor_split(dist.get_world_size())]
    biggest = pieces[0].numel()
    padded = [torch.cat([piece, piece.new_zeros(biggest - piece.numel())]) for piece in pieces]
    mine = torch.empty_like(padded[0])
    dist.reduce_scatter(mine, padded)
    return mine[: pieces[dist.get_rank()].numel()].clone()
