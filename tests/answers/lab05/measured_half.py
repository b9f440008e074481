# kind: wrong
# about: Predicts half the time of one process: no bubble at all.
# loses: measured_form
# says: "measured_form": "predicted_m4 for your one_process"

# %% solution="measured"
def measured():
    return {"one_process": 0.2, "m1": 0.21, "m4": 0.13, "predicted_m4": 0.1, "bubble_m4": 0.2}
