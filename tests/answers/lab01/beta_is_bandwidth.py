# kind: wrong
# about: Returns bytes per second for beta.
# loses: fit_line
# says: "fit_line": "the reciprocal"

# %% solution="fit_alpha_beta"
def fit_alpha_beta(nbytes, seconds):
    beta, alpha = np.polyfit(nbytes, seconds, 1)
    return float(alpha), float(1 / beta)
