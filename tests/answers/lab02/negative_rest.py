# kind: wrong
# about: A message shorter than what could hide it makes the step shorter than its computing.
# loses: scaling_model
# says: "scaling_model": "step_seconds on 1 ranks"

# %% solution="step_seconds"
def step_seconds(
    world: int, compute: float, fixed: float, nbytes: float, alpha: float, beta: float, overlap: float
) -> float:
    message = 2 * (world - 1) * (alpha + nbytes / world * beta)
    return fixed + compute / world + (message - overlap * compute / world)
