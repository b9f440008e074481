# kind: wrong
# about: Charges the whole buffer for each of the 2(p-1) ring steps.
# loses: predict
# says: "predict": "ring_seconds"

# %% solution="ring_seconds"
def ring_seconds(nbytes, world, alpha, beta):
    return 2 * (world - 1) * (alpha + nbytes * beta)
