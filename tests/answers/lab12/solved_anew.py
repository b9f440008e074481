# kind: right
# about: Least squares for every input, no Cholesky factor.

# %% solution="calibrated"
def calibrated(weight, x, scale, bits, damp=0.01):
    inputs, top = weight.shape[1], 2 ** (bits - 1) - 1
    first = weight.double()
    steps = torch.stack([scale[:, i * scale.shape[1] // inputs] for i in range(inputs)], 1).double()
    hessian = x.double().t() @ x.double()
    hessian += torch.diag(hessian.diagonal().mean() * damp * torch.ones(inputs, dtype=torch.float64))
    now, q = first.clone(), torch.zeros(weight.shape, dtype=torch.int8)
    for i in range(inputs):
        ratio = (now[:, i] / steps[:, i]).nan_to_num(0.0, 0.0, 0.0)
        q[:, i] = ratio.round().clamp(-top, top).to(torch.int8)
        off = q[:, : i + 1].double() * steps[:, : i + 1] - first[:, : i + 1]
        if i + 1 < inputs and hessian.any():
            rest, cross = hessian[i + 1 :, i + 1 :], hessian[i + 1 :, : i + 1]
            now[:, i + 1 :] = first[:, i + 1 :] - torch.linalg.solve(rest, cross @ off.t()).t()
    return q
