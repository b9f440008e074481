# kind: right
# about: Loops over positions, and writes the softmax out.

# %% solution="paged_attention"
def paged_attention(cache, rows, layer, q, k, v, positions):
    if sum(row[2] for row in rows) != q.shape[2]:
        raise ValueError(f"{sum(row[2] for row in rows)} tokens in rows, {q.shape[2]} in q")
    out, at, size, group = torch.empty_like(q), 0, cache.block_size, q.shape[1] // k.shape[1]
    for table, start, count in rows:
        for i in range(start, start + count):
            cache.k[layer, table[i // size], i % size] = k[0, :, at + i - start]
            cache.v[layer, table[i // size], i % size] = v[0, :, at + i - start]
        for i in range(start, start + count):
            places = [(table[j // size], j % size) for j in range(i + 1)]
            keys = torch.stack([cache.k[layer, block, slot] for block, slot in places], 1).repeat_interleave(group, 0)
            values = torch.stack([cache.v[layer, block, slot] for block, slot in places], 1).repeat_interleave(group, 0)
            scores = (keys @ q[0, :, at + i - start, :, None]).squeeze(-1) / q.shape[-1] ** 0.5
            out[0, :, at + i - start] = (scores.softmax(-1)[:, None] @ values).squeeze(1)
        at += count
    return out
