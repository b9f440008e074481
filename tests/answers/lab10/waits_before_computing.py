# kind: wrong
# about: Starts the transfer and waits for it at once: nothing travels while it computes.
# loses: ring_overlap
# says: "ring_overlap": "Start the next block's transfer, compute with the block that is there"

# %% edit="ring_attention"
# replace
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
# by
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
                wait_all(works)
                works = []
# replace
        kv, dq, dkv_in, grad_works = torch.stack([k, v]), torch.zeros(q.shape), None, []
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
# by
        kv, dq, dkv_in, grad_works = torch.stack([k, v]), torch.zeros(q.shape), None, []
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
                wait_all(works)
                works = []
