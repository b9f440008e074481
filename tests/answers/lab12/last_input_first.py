# kind: wrong
# about: Rounds the last input first.
# loses: calibrated_levels, calibrated_awkward
# says: "calibrated_levels": "the last input was rounded first"

# %% solution="calibrated"
def calibrated(weight, x, scale, bits, damp=0.01):
    steps = scale.double().repeat_interleave(weight.shape[1] // scale.shape[1], 1)
    weight, x, steps = weight.double().flip(1), x.double().flip(1), steps.flip(1)
    gram = x.t() @ x
    gram.diagonal().add_(damp * gram.diagonal().mean() or 1.0)
    upper = torch.linalg.cholesky(torch.linalg.inv(gram), upper=True)
    q, top = torch.zeros_like(weight), 2 ** (bits - 1) - 1
    for i in range(weight.shape[1]):
        q[:, i] = torch.where(steps[:, i] > 0, weight[:, i] / steps[:, i], 0.0).round().clamp(-top, top)
        error = (weight[:, i] - q[:, i] * steps[:, i]) / upper[i, i]
        weight[:, i + 1 :] -= error[:, None] * upper[i, i + 1 :]
    return q.flip(1).to(torch.int8)
