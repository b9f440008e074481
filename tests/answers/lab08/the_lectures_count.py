# kind: wrong
# about: Takes the lecture's numbers: four previous tokens besides the new one; targets without a shift.
# loses: question_values
# says: "question_values": "first_step_sees and targets"

# %% edit="questions"
# replace
        "first_step_sees": 4,
        "inputs": [5, 8, 2],
        "targets": [8, 2, 9],
        "kv_bytes": 80 * 4 * 8192 * 2 * 8 * 128 * 2,
# by
        "first_step_sees": 5,
        "inputs": [5, 8, 2],
        "targets": [5, 8, 2],
        "kv_bytes": 80 * 8192 * 2 * 8 * 128 * 2,
