# kind: wrong
# about: KV heads are tiled over query heads.
# loses: paged_values, engine_outputs
# says: "paged_values": "query heads read KV heads in turn"

# %% edit="paged_attention"
# replace
        outputs.append(F.scaled_dot_product_attention(own_q, own_k, own_v, attn_mask=seen, enable_gqa=True))
# by
        own_k, own_v = (t.repeat(1, q.shape[1] // k.shape[1], 1, 1) for t in (own_k, own_v))
        outputs.append(F.scaled_dot_product_attention(own_q, own_k, own_v, attn_mask=seen))
