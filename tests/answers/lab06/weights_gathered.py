# kind: wrong
# about: Sums up the whole embedding on every rank, then looks up: right values, V H numbers sent.
# loses: embedding_step
# says: "embedding_step": "are enough"

# %% solution="vocab_embedding"
def vocab_embedding(tokens, weight, start, group=None):
    vocab = torch.tensor([start + weight.shape[0]])
    dist.all_reduce(vocab, op=dist.ReduceOp.MAX, group=group)
    after = int(vocab) - start - weight.shape[0]
    return F.embedding(tokens, reduce_from(F.pad(weight, (0, 0, start, after)), group))
