# kind: wrong
# about: Averages the blocks' results without their log-sum-exps.
# loses: ring_values, ring_gradients, ring_traffic, ring_overlap, ring_balance, ring_memory
# says: "ring_values": "the mean of the blocks' results, without the weights"

# %% edit="ring_attention"
# replace
            out, lse = part if out is None else merge(out, lse, *part)
# by
            lse = part[1] if out is None else torch.logaddexp(lse, part[1])
            out = part[0] / ranks if out is None else out + part[0] / ranks
