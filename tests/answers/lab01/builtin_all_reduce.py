# kind: wrong
# about: Calls dist.all_reduce.
# loses: ring_sum, ring_uneven, ring_in_place, ring_late, ring_traffic
# says: "ring_sum": "called the built-in all_reduce"
# says: "ring_uneven": "called the built-in all_reduce"
# says: "ring_in_place": "called the built-in all_reduce"
# says: "ring_late": "called the built-in all_reduce"
# says: "ring_traffic": "called the built-in all_reduce"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous()
    dist.all_reduce(flat)
    x.copy_(flat)
