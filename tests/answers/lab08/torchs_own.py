# kind: wrong
# about: Calls what it is held to.
# loses: gqa_memory
# says: "gqa_memory": "calls scaled_dot_product_attention"

# %% solution="gqa_attention"
def gqa_attention(q, k, v, mask):
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None], enable_gqa=True)
    return torch.where(mask.any(-1)[:, None, :, None], y, 0.0)
