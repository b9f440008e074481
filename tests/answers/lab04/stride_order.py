# kind: wrong
# about: Takes the elements as they lie in memory, so a transposed matrix comes out transposed.
# loses: flatten_values
# says: "flatten_values": "row by row"

# %% solution="flatten"
def flatten(tensors, ranks):
    pieces = [t.detach().as_strided((t.numel(),), (1,), t.storage_offset()) for t in tensors]
    flat = torch.cat(pieces)
    return F.pad(flat, (0, -flat.numel() % ranks))
