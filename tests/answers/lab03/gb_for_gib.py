# kind: wrong
# about: GB and GiB taken for the same.
# loses: question_numbers_values
# says: "question_numbers_values": "think again about \"states_gib\""

# %% solution="question_numbers"
def question_numbers():
    return {
        "states_gb": 112.0,
        "states_gib": 112,
        "with_fp32_sums_gb": 140,
        "each_card_gb": 112,
        "bf16_stops_at": 256,
        "recompute_ratio": 1.333,
        "attention_rules_from": 24576,
    }
