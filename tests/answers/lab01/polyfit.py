# kind: right
# about: np.polyfit, refitted without the term that would be negative; tuples in the answers.
# loses:

# %% solution="fit_alpha_beta"
def fit_alpha_beta(nbytes, seconds):
    beta, alpha = np.polyfit(nbytes, seconds, 1)
    if beta < 0:
        return np.mean(seconds), 0.0
    if alpha < 0:
        return 0.0, np.dot(nbytes, seconds) / np.dot(nbytes, nbytes)
    return [alpha, beta]

# %% solution="question_results"
def question_results():
    return {
        "all_reduce": (5, 7, 9),
        "all_gather": (1, 2, 3, 4, 5, 6),
        "four_ranks": (4, 6),
        "reduce_scatter_0": (5, 7),
        "reduce_scatter_1": (9,),
    }
