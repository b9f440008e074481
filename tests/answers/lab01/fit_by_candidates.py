# kind: right
# about: The fit by trying lstsq on every set of terms; the crossover by bisection.
# loses:

# %% solution="fit_alpha_beta"
def fit_alpha_beta(nbytes, seconds):
    n, t = np.array(nbytes, float), np.array(seconds, float)
    scale = n.max()
    lines = []
    for columns in ([1, 1], [0, 1], [1, 0]):
        design = np.stack([np.ones_like(n), n / scale], 1) * columns
        alpha, beta = np.linalg.lstsq(design, t, rcond=None)[0]
        if alpha >= 0 and beta >= 0:
            error = ((alpha + n / scale * beta - t) ** 2).sum()
            lines.append((error, alpha, beta / scale))
    return min(lines)[1:]

# %% solution="crossover_bytes"
def crossover_bytes(world, alpha, beta):
    low, high = 0.0, 1e15
    if ring_seconds(1e-3 * alpha / beta, world, alpha, beta) <= tree_seconds(1e-3 * alpha / beta, world, alpha, beta):
        return 0
    while high - low > 1e-9 * high:
        middle = (low + high) / 2
        if ring_seconds(middle, world, alpha, beta) > tree_seconds(middle, world, alpha, beta):
            low = middle
        else:
            high = middle
    return low
