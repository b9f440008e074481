# kind: wrong
# about: Writes down the bubble over the ideal.
# loses: measured_form
# says: "measured_form": "bubble_m4, the share of the total,"

# %% solution="measured"
def measured():
    return {"one_process": 0.2, "m1": 0.21, "m4": 0.13, "predicted_m4": 0.125, "bubble_m4": 0.25}
