# kind: wrong
# about: Counts the two all-reduces of the forward pass only.
# loses: question_values
# says: "question_values": "2 times too small"

# %% solution="questions"
def questions():
    return {
        "column_0": [5],
        "column_1": [7],
        "row_0": [1, 1],
        "row_1": [4, 6],
        "row_sum": [5, 7],
        "w1_shape": [8, 16],
        "inner_shape": [2, 5, 16],
        "w2_shape": [16, 8],
        "partial_shape": [2, 5, 8],
        "bytes_per_block": 58720256,
        "first_by_columns": "A",
        "second_by_rows": "B",
        "gather_between": "C",
        "fast_link": "A",
    }
