# kind: wrong
# about: All-gathers k and v (padded), and computes on all of it: no ring.
# loses: ring_traffic, ring_overlap, ring_memory
# says: "ring_traffic": "called all_gather; blocks travel by send and receive"

# %% edit="ring_attention"
# replace
        kv, out, lse = torch.stack([k, v]), None, None
# by
        kv, out, lse = torch.stack([k, v]), None, None
        most = max(len(own) for own in positions)
        parts = [kv.new_empty(*kv.shape[:3], most, kv.shape[4]) for _ in range(ranks)]
        dist.all_gather(parts, F.pad(kv, (0, 0, 0, most - kv.shape[3])).contiguous())
# replace
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
            part = blockwise_forward(q, kv[0], kv[1], positions[rank], positions[source], tile, **rule)
# by
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            kv = parts[source][:, :, :, : len(positions[source])]
            part = blockwise_forward(q, kv[0], kv[1], positions[rank], positions[source], tile, **rule)
# replace
            del part
            wait_all(works)
            if step < ranks - 1:
                kv = received
# by
            del part
