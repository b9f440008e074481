# kind: wrong
# about: A blocking send on every rank, and nobody receives.
# loses: ring_values, ring_gradients, ring_traffic, ring_overlap, ring_balance, ring_memory
# says: "ring_values": "every rank waits"

# %% edit="ring_attention"
# replace
    works = [dist.isend(x, (rank + 1) % ranks), dist.irecv(received, (rank - 1) % ranks)]
    return received, works
# by
    dist.send(x, (rank + 1) % ranks)
    dist.recv(received, (rank - 1) % ranks)
    return received, []
