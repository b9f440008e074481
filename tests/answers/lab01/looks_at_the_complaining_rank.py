# kind: wrong
# about: Looks at the rank that reports the timeout.
# loses: question_causes_letters
# says: "question_causes_letters": "Think again about late_look"

# %% solution="question_causes"
def question_causes():
    return {
        "why_not_reduce": "C",
        "all_reduce": "A",
        "all_gather": "D",
        "reduce_scatter": "C",
        "use_all_reduce": "C",
        "use_all_gather": "A",
        "use_reduce_scatter": "B",
        "late_seen": "B",
        "late_look": "A",
    }
