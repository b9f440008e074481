# kind: wrong
# about: lse + log(1 + exp(lse_b - lse)): infinite from a gap of 89 on (F03).
# loses: merge_gaps, ring_values, ring_gradients
# says: "merge_gaps": "exp of a difference above 88 overflows"

# %% solution="merge"
def merge(out_a, lse_a, out_b, lse_b):
    lse = lse_a + torch.log(1 + torch.exp(lse_b - lse_a))
    weight_a, weight_b = torch.exp(lse_a - lse), torch.exp(lse_b - lse)
    return weight_a[..., None] * out_a + weight_b[..., None] * out_b, lse
