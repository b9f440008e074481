# kind: wrong
# about: Each rank attends to its own block; nothing travels.
# loses: ring_values, ring_gradients, ring_traffic, ring_overlap, ring_balance, ring_memory
# says: "ring_values": "attention to this rank's own block only"
# says: "ring_traffic": "sent to nobody"

# %% edit="ring_attention"
# replace
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
# by
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(1):
            source, works = (rank - step) % ranks, []
            if step < 0:
# replace
            del part
            wait_all(works)
            if step < ranks - 1:
# by
            del part
            wait_all(works)
            if step < 0:
# replace
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
# by
        for step in range(1):
            source, works = (rank - step) % ranks, []
            if step < 0:
# replace
            if ranks > 1:  # the last pass brings them home
# by
            if ranks < 0:  # the last pass brings them home
# replace
            if step < ranks - 1:
# by
            if step < 0:
# replace
        dk, dv = dkv if ranks == 1 else dkv_in
# by
        dk, dv = dkv if ranks > 0 else dkv_in
