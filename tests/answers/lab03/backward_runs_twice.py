# kind: wrong
# about: The backward pass runs twice.
# loses: question_causes_letters
# says: "question_causes_letters": "are right. Think again about why_slower"

# %% solution="question_causes"
def question_causes():
    return {
        "why_masters": "B",
        "contradiction": "C",
        "why_saves": "C",
        "why_slower": "C",
        "not_reduced": "D",
        "one_rank_overflows": "B",
        "random_not_restored": "C",
    }
