# kind: right
# about: By the sigmoid of the difference, as torch's own ring does.

# %% solution="merge"
def merge(out_a, lse_a, out_b, lse_b):
    gap = lse_b - lse_a
    share = torch.sigmoid(gap.masked_fill(gap.isnan(), 0)).unsqueeze(-1)
    larger = torch.maximum(lse_a, lse_b)
    lse = larger + F.softplus(-gap.abs())
    return torch.lerp(out_a, out_b, share), lse.where(larger > -math.inf, larger)
