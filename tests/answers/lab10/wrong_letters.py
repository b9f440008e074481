# kind: wrong
# about: Rounding errors, and q travels.
# loses: question_values
# says: "question_values": "Think again about not_additive and ring_remains"

# %% edit="questions"
# replace
        "not_additive": "B",
        "ring_remains": "A",
# by
        "not_additive": "A",
        "ring_remains": "B",
