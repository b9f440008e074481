# kind: wrong
# about: Starts the forward pass's transfers after the products.
# loses: ring_overlap
# says: "ring_overlap": "forward"

# %% edit="ring_attention"
# replace
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
# by
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            part = blockwise_forward(q, kv[0], kv[1], positions[rank], positions[source], tile, **rule)
# replace
                received, works = start_pass(kv, len(positions[source - 1]))
            part = blockwise_forward(q, kv[0], kv[1], positions[rank], positions[source], tile, **rule)
# by
                received, works = start_pass(kv, len(positions[source - 1]))
