# kind: right
# about: Gathers whole blocks and masks what is not the request's; a mask of added numbers.

# %% solution="paged_attention"
def paged_attention(cache, rows, layer, q, k, v, positions):
    counts = [count for _, _, count in rows]
    if sum(counts) != q.shape[2]:
        raise ValueError(f"counts add up to {sum(counts)}, q has {q.shape[2]}")
    size, parts = cache.block_size, []
    pieces = zip(rows, *(t.split(counts, dim=2) for t in (q, k, v)))
    for (table, start, count), own_q, own_k, own_v in pieces:
        place = torch.arange(start, start + count)
        blocks = torch.tensor(table)[place // size]
        cache.k[layer].index_put_((blocks, place % size), own_k[0].transpose(0, 1).contiguous())
        cache.v[layer].index_put_((blocks, place % size), own_v[0].transpose(0, 1).contiguous())
        parts.append((own_q, torch.tensor(table), place))
    outputs = []
    for own_q, table, place in parts:
        keys, values = (kept[layer, table].flatten(0, 1).transpose(0, 1)[None] for kept in (cache.k, cache.v))
        mask = torch.zeros(len(place), keys.shape[2])
        mask[torch.arange(keys.shape[2]) > place[:, None]] = float("-inf")
        outputs.append(F.scaled_dot_product_attention(own_q, keys, values, attn_mask=mask, enable_gqa=True))
    return torch.cat(outputs, 2)
