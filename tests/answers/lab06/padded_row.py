# kind: right
# about: Tokens of other ranks point to a row of zeros below the shard.

# %% solution="vocab_embedding"
def vocab_embedding(tokens, weight, start, group=None):
    padded = torch.cat([weight, weight.new_zeros(1, weight.shape[1])])
    local = tokens - start
    local = torch.where((local < 0) | (local >= weight.shape[0]), weight.shape[0], local)
    return reduce_from(padded[local], group)
