# kind: wrong
# about: GiB in place of GB.
# loses: question_memory_value
# says: "question_memory_value": "wanted 16"

# %% solution="question_memory"
def question_memory(parameters, ranks, stage):
    sharded = [0, 12, 14, 16][stage]
    return parameters * (16 - sharded + sharded / ranks) / 2**30
