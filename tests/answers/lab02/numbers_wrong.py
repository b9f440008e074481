# kind: wrong
# about: State is counted as if it were sharded, and the learning rate as if it grew.
# loses: question_numbers_values
# says: "question_numbers_values": "4 of 7 are right. Think again about lr_equivalent, state_one and state_all"

# %% solution="question_numbers"
def question_numbers() -> dict[str, float]:
    return {
        "global_batch": 512,
        "lr_equivalent": 0.8,
        "state_one": 14,
        "state_all": 112,
        "ring_sent": 24.5,
        "server_sent": 112,
        "collectives": 10,
    }
