# kind: wrong
# about: The denominator counts masked keys; only the weights are masked (F16).
# loses: blockwise_values, blockwise_masks, blockwise_precision, blockwise_gradients, blockwise_memory,
#  blockwise_work, ring_values, ring_gradients, ring_traffic, ring_balance, ring_memory, all_to_all_step
# says: "blockwise_values": "masked after the softmax"

# %% edit="blockwise_forward"
# replace
            if not seen.any():
                continue
            scores = (rows @ key.float().transpose(-1, -2)).masked_fill(~seen, -math.inf)
# by
            scores = (rows @ key.float().transpose(-1, -2))
# replace
            m, l, u = top, l * shrink + weights.sum(-1), u * shrink[..., None] + weights @ value.float()  # noqa: E741
# by
            m, l, u = top, l * shrink + weights.sum(-1), u * shrink[..., None] + (weights * seen) @ value.float()  # noqa: E741
