# kind: wrong
# about: Old sums are added as they are.
# loses: question_values
# says: "question_values": "shrink"

# %% edit="questions"
# replace
        "shrink": 0.5,
        "l": 2,
        "u": 12,
        "out": 6,
# by
        "shrink": 1,
        "l": 3,
        "u": 15,
        "out": 5,
