# kind: wrong
# about: Keeps every block that comes by for the backward pass.
# loses: ring_memory
# says: "ring_memory": "times q's bytes are held for the backward pass"

# %% edit="ring_attention"
# replace
        kv, out, lse = torch.stack([k, v]), None, None
# by
        kv, out, lse, ctx.blocks = torch.stack([k, v]), None, None, {}
# replace
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
            part = blockwise_forward(q, kv[0], kv[1], positions[rank], positions[source], tile, **rule)
# by
        for step in range(ranks):
            source, works = (rank - step) % ranks, []
            ctx.blocks[source] = kv
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
            part = blockwise_forward(q, kv[0], kv[1], positions[rank], positions[source], tile, **rule)
# replace
            source, works = (rank - step) % ranks, []
            if step < ranks - 1:
                received, works = start_pass(kv, len(positions[source - 1]))
# by
            source = (rank - step) % ranks
            kv = ctx.blocks[source]
# replace
                dkv_in, grad_works = start_pass(dkv, len(positions[source - 1]))
            wait_all(works)
            if step < ranks - 1:
                kv = received
# by
                dkv_in, grad_works = start_pass(dkv, len(positions[source - 1]))
