# kind: wrong
# about: Half a step more.
# loses: question_numbers_values
# says: "question_numbers_values": "think again about \"recompute_ratio\""

# %% solution="question_numbers"
def question_numbers():
    return {
        "states_gb": 112.0,
        "states_gib": 104.3,
        "with_fp32_sums_gb": 140,
        "each_card_gb": 112,
        "bf16_stops_at": 256,
        "recompute_ratio": 1.5,
        "attention_rules_from": 24576,
    }
