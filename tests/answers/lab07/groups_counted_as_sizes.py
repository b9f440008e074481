# kind: wrong
# about: The size of the groups in place of their number.
# loses: question_sizes_values
# says: "question_sizes_values": "Think again about tp_groups"

# %% edit="question_sizes"
# replace
        "tp_groups": 16,
        "pp_groups": 32,
# by
        "tp_groups": 4,
        "pp_groups": 2,
