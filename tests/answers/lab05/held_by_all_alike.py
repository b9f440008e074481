# kind: wrong
# about: Every rank of 1F1B has p micro-batches in flight; one direction only.
# loses: question_numbers_values
# says: "question_numbers_values": "Think again about held_1f1b and crossing."

# %% solution="question_numbers"
def question_numbers():
    return {"units": [10, 6], "held_gpipe": [8, 8, 8, 8], "held_1f1b": [4, 4, 4, 4], "enough": [27, 63], "crossing": [256, 256]}
