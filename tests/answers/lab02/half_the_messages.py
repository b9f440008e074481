# kind: wrong
# about: p-1 messages: the all-gather half of the ring is forgotten.
# loses: scaling_model
# says: "scaling_model": "step_seconds on 2 ranks"

# %% solution="step_seconds"
def step_seconds(
    world: int, compute: float, fixed: float, nbytes: float, alpha: float, beta: float, overlap: float
) -> float:
    message = (world - 1) * (alpha + nbytes / world * beta)
    return fixed + compute / world + max(0.0, message - overlap * compute / world)
