# kind: wrong
# about: Counts the choices of one rank only.
# loses: question_values
# says: "question_values": "8 times too small"

# %% edit="questions"
# replace
        "capacity": 1280,
# by
        "capacity": 160,
