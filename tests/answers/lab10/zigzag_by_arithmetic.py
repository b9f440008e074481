# kind: right
# about: Chunk borders from a division, labels by roll.

# %% solution="shard_tokens"
def zigzag_positions(seq, rank, ranks):
    each, longer = divmod(seq, 2 * ranks)
    owned = []
    for chunk in (rank, 2 * ranks - rank - 1):
        begin = chunk * each + min(chunk, longer)
        owned += range(begin, begin + each + (chunk < longer))
    return torch.tensor(owned, dtype=torch.int64)


def shard_tokens(tokens, rank, ranks):
    where = zigzag_positions(tokens.shape[1], rank, ranks)
    labels = tokens.roll(-1, 1)
    labels[:, -1] = -100
    return {"positions": where, "labels": labels.index_select(1, where), "inputs": tokens.index_select(1, where)}
