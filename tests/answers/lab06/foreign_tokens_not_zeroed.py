# kind: wrong
# about: A token of another rank adds this rank's first row.
# loses: embedding_step, passed_group
# says: "embedding_step": "vocab_embedding"

# %% solution="vocab_embedding"
def vocab_embedding(tokens, weight, start, group=None):
    local = tokens - start
    mine = (local >= 0) & (local < weight.shape[0])
    rows = F.embedding(local.where(mine, 0), weight)
    return reduce_from(rows, group)
