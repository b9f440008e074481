# kind: wrong
# about: Takes overlap for the part of the message that is hidden.
# loses: scaling_model
# says: "scaling_model": "step_seconds on 2 ranks"

# %% solution="step_seconds"
def step_seconds(
    world: int, compute: float, fixed: float, nbytes: float, alpha: float, beta: float, overlap: float
) -> float:
    message = 2 * (world - 1) * (alpha + nbytes / world * beta)
    return fixed + compute / world + message * (1 - overlap)
