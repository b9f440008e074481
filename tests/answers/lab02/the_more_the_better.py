# kind: wrong
# about: Takes the largest world for the best.
# loses: scaling_model
# says: "scaling_model": "another world size has a shorter step"

# %% solution="best_world"
def best_world(most, compute, fixed, nbytes, alpha, beta, overlap):
    return most
