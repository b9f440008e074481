# kind: wrong
# about: Compares attention with the feed-forward alone.
# loses: flops_crossover
# says: "flops_crossover": "only the feed-forward was counted"

# %% solution="crossover"
def crossover(sizes):
    return (3 if sizes.gated else 2) * sizes.ffn / 2
