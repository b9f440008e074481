# kind: wrong
# about: Sets a negative alpha to 0 and keeps the slope that belonged to it.
# loses: fit_line
# says: "fit_line": "the unbounded line has a negative alpha"

# %% solution="fit_alpha_beta"
def fit_alpha_beta(nbytes, seconds):
    beta, alpha = np.polyfit(nbytes, seconds, 1)
    return max(0.0, float(alpha)), max(0.0, float(beta))
