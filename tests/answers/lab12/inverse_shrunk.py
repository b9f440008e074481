# kind: right
# about: Optimal brain surgeon: the inverse loses a row and a column for each input.

# %% solution="calibrated"
def calibrated(weight, x, scale, bits, damp=0.01):
    inputs, top, w = weight.shape[1], 2 ** (bits - 1) - 1, weight.double().clone()
    hessian = x.double().t() @ x.double()
    ridge = float(damp * hessian.diagonal().mean())
    inverse = torch.linalg.inv(hessian + (ridge or 1.0) * torch.eye(inputs, dtype=torch.float64))
    q = torch.zeros(weight.shape, dtype=torch.int8)
    for i in range(inputs):
        step = scale[:, i // (inputs // scale.shape[1])].double()
        level = torch.zeros_like(step)
        level[step > 0] = (w[step > 0, i] / step[step > 0]).round().clamp(-top, top)
        q[:, i] = level.to(torch.int8)
        w = w - ((w[:, i] - level * step) / inverse[i, i])[:, None] * inverse[i]
        inverse = inverse - inverse[:, i : i + 1] * inverse[i] / inverse[i, i]
    return q
