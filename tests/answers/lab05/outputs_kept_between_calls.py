# kind: wrong
# about: Keeps the last outputs in a global, for looking at them later.
# loses: run_memory
# says: "run_memory": "after the step"

# %% edit="run_schedule"
# replace
def run_schedule(
# by
outputs = []


def run_schedule(

# replace
        held[stage, k] = x, y
# by
        held[stage, k] = x, y
        outputs[:] = [y, *outputs[:1]]
