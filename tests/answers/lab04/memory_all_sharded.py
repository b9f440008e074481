# kind: wrong
# about: Divides everything by the number of ranks in stage 2 already.
# loses: question_memory_value
# says: "question_memory_value": "question_memory(7.5e+09, 4, 2)"

# %% solution="question_memory"
def question_memory(parameters, ranks, stage):
    sharded = [0, 12, 16, 16][stage]
    return parameters * (16 - sharded + sharded / ranks) / 1e9
