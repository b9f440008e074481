# kind: wrong
# about: Thinks that stage 2 sends 1.5 times as much as plain data parallelism.
# loses: question_causes_letters
# says: "question_causes_letters": "5 of 6 are right. Think again about stage_2_traffic"

# %% solution="question_causes"
def question_causes():
    return {
        "why_traffic": "B",
        "stage_2_traffic": "C",
        "stage_3_traffic": "C",
        "still_too_big": "B",
        "small_units": "A",
        "prefetch": "C",
    }
