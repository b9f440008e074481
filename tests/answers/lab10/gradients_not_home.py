# kind: wrong
# about: dk and dv travel p-1 passes: they end one rank away from home.
# loses: ring_gradients
# says: "ring_gradients": "the last pass brings them home"

# %% edit="ring_attention"
# replace
            if ranks > 1:  # the last pass brings them home
# by
            if step < ranks - 1:
# replace
        wait_all(grad_works)
        dk, dv = dkv if ranks == 1 else dkv_in
# by
        dk, dv = dkv
