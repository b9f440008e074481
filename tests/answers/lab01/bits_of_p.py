# kind: wrong
# about: Counts the tree's rounds as the bits of p: one too many when p is a power of two.
# loses: predict
# says: "predict": "2 times too large"

# %% solution="tree_seconds"
def tree_seconds(nbytes, world, alpha, beta):
    return 2 * world.bit_length() * (alpha + nbytes * beta)
