# kind: wrong
# about: B's first chunk counts as its first token; TPOT is taken over all tokens; a prefix that is all of the prompt leaves nothing.
# loses: question_numbers_values
# says: "question_numbers_values": "2 of 6 are right. Think again about ttft, tpot, rate and computed."

# %% solution="question_numbers"
def question_numbers():
    return {"ttft": [15, 55], "tpot": [23, 11], "rate": [62], "steps": [20, 15], "blocks": [50, 5], "computed": [5, 0]}
