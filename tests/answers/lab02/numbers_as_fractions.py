# kind: right
# about: Numbers computed in place.

# %% solution="question_numbers"
def question_numbers():
    params, cards, gb = 7e9, 8, 1e9
    state = 16 * params / gb
    return {
        "global_batch": cards * 4 * 16,
        "lr_equivalent": 0.1 / cards,
        "state_one": state,
        "state_all": state * cards,
        "ring_sent": 2 * (cards - 1) / cards * 2 * params / gb,
        "server_sent": cards * 2 * params / gb,
        "collectives": -(-48 // 5),
    }
