# kind: wrong
# about: Static batches take as long as their mean request; a token that was only generated has its slot already.
# loses: question_numbers_values
# says: "question_numbers_values": "4 of 6 are right. Think again about steps and blocks."

# %% solution="question_numbers"
def question_numbers():
    return {"ttft": [15, 85], "tpot": [25, 10], "rate": [64], "steps": [13, 13], "blocks": [51, 5], "computed": [5, 16]}
