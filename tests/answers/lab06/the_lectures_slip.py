# kind: wrong
# about: The lecture's [3] and [4] for the rows, and its gather before the activation.
# loses: question_values
# says: "question_values": "Think again about row_0, row_1 and gather_between"

# %% solution="questions"
def questions():
    return {
        "column_0": [5],
        "column_1": [7],
        "row_0": [3],
        "row_1": [4],
        "row_sum": [5, 7],
        "w1_shape": [8, 16],
        "inner_shape": [2, 5, 16],
        "w2_shape": [16, 8],
        "partial_shape": [2, 5, 8],
        "bytes_per_block": 117440512,
        "first_by_columns": "A",
        "second_by_rows": "B",
        "gather_between": "A",
        "fast_link": "A",
    }
