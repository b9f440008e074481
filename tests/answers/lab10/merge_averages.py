# kind: wrong
# about: The mean of both parts, whatever their sums of exponentials.
# loses: merge_gaps, ring_values, ring_gradients, ring_traffic, ring_overlap, ring_balance, ring_memory
# says: "merge_gaps": "it is the mean of both parts"
# says: "ring_values": "the mean of the blocks' results"

# %% edit="merge"
# replace
    safe = lse.masked_fill(lse == -math.inf, 0)[..., None]
    return (lse_a[..., None] - safe).exp() * out_a + (lse_b[..., None] - safe).exp() * out_b, lse
# by
    return (out_a + out_b) / 2, lse
