# kind: wrong
# about: Scores, exponentials and sums in the type of q: bf16 sums of ones end at 256.
# loses: blockwise_precision
# says: "blockwise_precision": "a sum of ones in bf16 ends at 256"

# %% edit="blockwise_forward"
# replace
        rows = rows.float() / math.sqrt(q.shape[-1])
        m = torch.full(rows.shape[:-1], -math.inf)
# by
        rows = rows / math.sqrt(q.shape[-1])
        m = torch.full(rows.shape[:-1], -math.inf, dtype=q.dtype)
# replace
            scores = (rows @ key.float().transpose(-1, -2)).masked_fill(~seen, -math.inf)
# by
            scores = (rows @ key.transpose(-1, -2)).masked_fill(~seen, -math.inf)
# replace
            m, l, u = top, l * shrink + weights.sum(-1), u * shrink[..., None] + weights @ value.float()  # noqa: E741
# by
            m, l, u = top, l * shrink + weights.sum(-1), u * shrink[..., None] + weights @ value  # noqa: E741
# replace
    return torch.cat(outs, 2), torch.cat(lses, 2)
# by
    return torch.cat(outs, 2).float(), torch.cat(lses, 2).float()
