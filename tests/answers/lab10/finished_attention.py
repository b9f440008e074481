# kind: wrong
# about: torch's own attention, with a log-sum-exp by hand.
# loses: blockwise_values, blockwise_gradients, blockwise_memory, blockwise_work, ring_values, ring_memory,
#  ring_balance, all_to_all_step
# says: "blockwise_values": "called torch's finished attention"
# says: "ring_values": "called torch's finished attention"
# says: "ring_balance": "where 16640 are enough (2.95 times)"

# %% solution="blockwise_forward"
def blockwise_forward(q, k, v, q_pos, k_pos, tile, **rule):
    seen = visible(q_pos, k_pos, **rule)
    empty = ~seen.any(-1, keepdim=True)
    out = F.scaled_dot_product_attention(q.float(), k.float(), v.float(), attn_mask=seen | empty)
    scores = (q.float() @ k.float().transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(~seen, -math.inf)
    return out.masked_fill(empty, 0), scores.logsumexp(-1)
