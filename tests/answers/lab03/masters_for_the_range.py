# kind: wrong
# about: Masters because bf16 cannot hold large numbers.
# loses: question_causes_letters
# says: "question_causes_letters": "are right. Think again about why_masters"

# %% solution="question_causes"
def question_causes():
    return {
        "why_masters": "D",
        "contradiction": "C",
        "why_saves": "C",
        "why_slower": "B",
        "not_reduced": "D",
        "one_rank_overflows": "B",
        "random_not_restored": "C",
    }
