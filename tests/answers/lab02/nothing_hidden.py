# kind: wrong
# about: Compute and message one after the other, whatever the overlap.
# loses: scaling_model
# says: "scaling_model": "overlap 0.5"

# %% solution="step_seconds"
def step_seconds(
    world: int, compute: float, fixed: float, nbytes: float, alpha: float, beta: float, overlap: float
) -> float:
    message = 2 * (world - 1) * (alpha + nbytes / world * beta)
    return fixed + compute / world + message
