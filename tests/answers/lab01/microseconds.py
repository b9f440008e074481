# kind: wrong
# about: Writes alpha in microseconds.
# loses: measured_form
# says: "measured_form": "Is the unit right?"

# %% solution="measured"
def measured():
    return {"alpha": 60.0, "beta": 8.0e-10, "predicted_bytes": 60000, "measured_bytes": None}
