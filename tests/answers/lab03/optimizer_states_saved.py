# kind: wrong
# about: Checkpointing saves optimizer states.
# loses: question_causes_letters
# says: "question_causes_letters": "are right. Think again about why_saves and not_reduced"

# %% solution="question_causes"
def question_causes():
    return {
        "why_masters": "B",
        "contradiction": "C",
        "why_saves": "B",
        "why_slower": "B",
        "not_reduced": "A",
        "one_rank_overflows": "B",
        "random_not_restored": "C",
    }
