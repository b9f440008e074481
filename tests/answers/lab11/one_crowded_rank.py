# kind: wrong
# about: Takes it that a crowded rank costs no time.
# loses: question_values
# says: "question_values": "one_rank_time is 1 ms, wanted 8"

# %% edit="questions"
# replace
        "one_rank_time": 8,
# by
        "one_rank_time": 1,
