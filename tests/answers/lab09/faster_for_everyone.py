# kind: wrong
# about: Bigger batches and smaller chunks make everything faster.
# loses: question_causes_letters
# says: "question_causes_letters": "1 of 5 are right"

# %% solution="question_causes"
def question_causes():
    return {"phases": "D", "chunks": "A", "batch": "A", "latest": "C", "compare": "D"}
