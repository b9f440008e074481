# kind: wrong
# about: Letters and numbers that are often given.
# loses: question_values

# %% edit="questions"
# replace
        "tp_sizes": [1, 3],
# by
        "tp_sizes": [1, 3, 9],
# replace
        "axis": "A",
# by
        "axis": "B",
