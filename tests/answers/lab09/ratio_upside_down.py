# kind: wrong
# about: The ratio is the wrong way round.
# loses: measured_form
# says: "measured_form": "ratio for your worst gaps"

# %% solution="measured"
def measured():
    return {"tokens_per_s_whole": 1200, "tokens_per_s_chunks": 1000, "worst_gap_whole": 24.0, "worst_gap_chunks": 12.0, "ratio": 0.5}
