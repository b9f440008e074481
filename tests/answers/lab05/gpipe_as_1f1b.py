# kind: wrong
# about: Hands in GPipe as 1F1B: right order, same time, all micro-batches in flight.
# loses: one_f_one_b_in_flight
# says: "one_f_one_b_in_flight": "that is GPipe"

# %% solution="one_f_one_b"
def one_f_one_b(p, m):
    return gpipe(p, m)
