# kind: wrong
# about: Each error goes to the next input only.
# loses: calibrated_levels, calibrated_held_out, calibrated_awkward
# says: "calibrated_levels": "handed to the next input only"

# %% solution="calibrated"
def calibrated(weight, x, scale, bits, damp=0.01):
    w, top = weight.double().clone(), 2 ** (bits - 1) - 1
    steps = scale.double().repeat_interleave(weight.shape[1] // scale.shape[1], 1)
    gram = x.double().t() @ x.double()
    gram.diagonal().add_(damp * gram.diagonal().mean())
    q = torch.zeros_like(w)
    for i in range(w.shape[1]):
        q[:, i] = torch.where(steps[:, i] > 0, w[:, i] / steps[:, i], 0.0).round().clamp(-top, top)
        if i + 1 < w.shape[1] and gram[i + 1, i + 1] > 0:
            w[:, i + 1] += (w[:, i] - q[:, i] * steps[:, i]) * gram[i, i + 1] / gram[i + 1, i + 1]
    return q.to(torch.int8)
