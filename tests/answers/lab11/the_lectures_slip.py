# kind: wrong
# about: 0.6 and 0.4 taken for the softmax over 64 as it is; balance for the gradients' sake.
# loses: question_values
# says: "question_values": "Think again about why_balance and convention"

# %% edit="questions"
# replace
        "why_balance": "B",
        "convention": "C",
# by
        "why_balance": "C",
        "convention": "A",
