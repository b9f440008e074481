# kind: wrong
# about: Reduce to rank 0, then broadcast: right values, the traffic of a bottleneck.
# loses: ring_traffic
# says: "ring_traffic": "Rank 0 received 3 times the buffer; in a ring it receives 2(p-1)/p = 1.5 times"

# %% solution="ring_all_reduce"
def ring_all_reduce(x):
    flat = x.contiguous()
    reduce(flat, 0)
    broadcast(flat, 0)
    x.copy_(flat)
