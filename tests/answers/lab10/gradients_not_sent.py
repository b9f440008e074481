# kind: wrong
# about: dk and dv hold only what the rank's own queries gave.
# loses: ring_gradients
# says: "ring_gradients": "only what this rank's own queries and keys give"

# %% edit="ring_attention"
# replace
        kv, dq, dkv_in, grad_works = torch.stack([k, v]), torch.zeros(q.shape), None, []
# by
        kv, dq = torch.stack([k, v]), torch.zeros(q.shape)
# replace
            wait_all(grad_works)
            dkv = own if dkv_in is None else own + dkv_in
            if ranks > 1:  # the last pass brings them home
                dkv_in, grad_works = start_pass(dkv, len(positions[source - 1]))
# by
            dkv = own if step == 0 else dkv
# replace
        wait_all(grad_works)
        dk, dv = dkv if ranks == 1 else dkv_in
# by
        dk, dv = dkv
