# kind: wrong
# about: Takes every rank's block to be as long as its own (F06).
# loses: ring_values, ring_gradients
# says: "ring_values": "sizes differ between rank"

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
                received, works = start_pass(kv, kv.shape[3])
# replace
                received, works = start_pass(kv, len(positions[source - 1]))
# by
                received, works = start_pass(kv, kv.shape[3])
# replace
                dkv_in, grad_works = start_pass(dkv, len(positions[source - 1]))
# by
                dkv_in, grad_works = start_pass(dkv, dkv.shape[3])
