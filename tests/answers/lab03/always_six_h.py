# kind: wrong
# about: 6H, whatever the block is.
# loses: flops_crossover
# says: "flops_crossover": "that is 6H"

# %% solution="crossover"
def crossover(sizes):
    return 6.0 * sizes.hidden
