# kind: wrong
# about: Thinks copies are kept against failures, and that averaging weights is always the same.
# loses: question_causes_letters
# says: "question_causes_letters": "6 of 8 are right. Think again about full_copy and average_weights"

# %% solution="question_causes"
def question_causes() -> dict[str, str]:
    return {
        "full_copy": "C",
        "copy_costs": "A",
        "too_large": "C",
        "small_buckets": "B",
        "large_buckets": "C",
        "sum_with_adamw": "A",
        "average_weights": "A",
        "server_limit": "D",
    }
