# kind: wrong
# about: Counts p rounds of the ring, the last one too.
# loses: question_values
# says: "question_values": "ring_bytes"

# %% edit="questions"
# replace
        "ring_bytes": 2 * 7 * 65536 // 8 * 1024 * 2,
# by
        "ring_bytes": 2 * 8 * 65536 // 8 * 1024 * 2,
