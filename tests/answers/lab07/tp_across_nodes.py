# kind: wrong
# about: dp gets the fast links, and buckets are the wrong way round.
# loses: question_axes_letters
# says: "question_axes_letters": "Think again about"

# %% solution="question_axes"
def question_axes() -> dict[str, str]:
    return {
        "dp": "C",
        "tp": "B",
        "pp": "A",
        "zero": "D",
        "inside": "A",
        "new_group": "B",
        "large_buckets": "A",
        "small_buckets": "B",
        "hidden": "B",
        "automatic": "B",
    }
