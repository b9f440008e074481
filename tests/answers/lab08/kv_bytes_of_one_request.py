# kind: wrong
# about: Counts the tokens of one request only.
# loses: question_values
# says: "question_values": "the tokens of all requests are cached"

# %% edit="questions"
# replace
        "kv_bytes": 80 * 4 * 8192 * 2 * 8 * 128 * 2,
# by
        "kv_bytes": 80 * 8192 * 2 * 8 * 128 * 2,
