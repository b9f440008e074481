# kind: wrong
# about: Counts the bubble over the ideal where the share of the total is asked for; more micro-batches, more bytes.
# loses: question_numbers_values
# says: "question_numbers_values": "3 of 5 are right. Think again about enough and crossing."

# %% solution="question_numbers"
def question_numbers():
    return {"units": [10, 6], "held_gpipe": [8, 8, 8, 8], "held_1f1b": [4, 3, 2, 1], "enough": [30, 70], "crossing": [512, 2048]}
