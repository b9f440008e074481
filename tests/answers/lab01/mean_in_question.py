# kind: wrong
# about: Takes the mean where the sum is asked, and adds where it should concatenate.
# loses: question_results_values
# says: "question_results_values": "Think again about all_gather and four_ranks"

# %% solution="question_results"
def question_results():
    return {
        "all_reduce": [5, 7, 9],
        "all_gather": [5, 7, 9],
        "four_ranks": [1, 1],
        "reduce_scatter_0": [5, 7],
        "reduce_scatter_1": [9],
    }
