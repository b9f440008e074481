# kind: wrong
# about: Passes the block on after the last round too.
# loses: ring_traffic
# says: "ring_traffic": "the last block need not be passed on"

# %% edit="ring_attention"
# replace
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
# by
        kv, out, lse = torch.stack([k, v]), None, None
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if ranks > 1:
