# kind: wrong
# about: Blames the network for the bubble, and takes 1F1B for faster.
# loses: question_causes_letters
# says: "question_causes_letters": "3 of 5 are right. Think again about bubble and gain."

# %% solution="question_causes"
def question_causes():
    return {"bubble": "A", "more": "C", "gain": "A", "price": "A", "table": "C"}
