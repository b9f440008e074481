# kind: wrong
# about: Takes it that eight cards of plain data parallelism share the states.
# loses: question_numbers_values
# says: "question_numbers_values": "think again about \"each_card_gb\""

# %% solution="question_numbers"
def question_numbers():
    return {
        "states_gb": 112.0,
        "states_gib": 104.3,
        "with_fp32_sums_gb": 140,
        "each_card_gb": 14,
        "bf16_stops_at": 256,
        "recompute_ratio": 1.333,
        "attention_rules_from": 24576,
    }
