# kind: wrong
# about: The first query is lined up with the first key.
# loses: int8_values
# says: "int8_values": "Int8Cache"

# %% edit="int8_cache"
# replace
        seen = torch.arange(end) <= torch.arange(start, end)[:, None]
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)
# by
        return F.scaled_dot_product_attention(q, keys, values, is_causal=True, enable_gqa=True)
