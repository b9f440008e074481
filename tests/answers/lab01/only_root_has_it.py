# kind: wrong
# about: Reduces to rank 0 and stops there.
# loses: ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_sum": "only rank 0 is right"
# says: "ring_uneven": "only rank 0 is right"
# says: "ring_in_place": "only rank 0 is right"
# says: "ring_late": "only rank 0 is right"
# says: "ring_traffic": "Rank 0 sent nothing"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous()
    reduce(flat, 0)
    x.copy_(flat)
