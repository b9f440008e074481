# kind: wrong
# about: is_causal=True lines up the first query with the first key (K07's cousin).
# loses: paged_values, engine_outputs
# says: "paged_values": "lines up the first query with the first key"

# %% solution="paged_attention"
def paged_attention(
    cache: KVBlocks,
    rows: list[tuple[list[int], int, int]],
    layer: int,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    positions: torch.Tensor,
) -> torch.Tensor:
    total = sum(count for _, _, count in rows)
    if total != q.shape[2]:
        raise ValueError(f"rows stand for {total} tokens, and q has {q.shape[2]}")
    keys, values = (kept[layer].flatten(0, 1) for kept in (cache.k, cache.v))  # [slots, kv_heads, head_dim], views
    size = cache.block_size
    places = [
        torch.tensor([table[i // size] * size + i % size for i in range(start + count)]) for table, start, count in rows
    ]
    new = torch.cat([place[start:] for place, (_, start, _) in zip(places, rows)])
    keys[new], values[new] = k[0].transpose(0, 1), v[0].transpose(0, 1)
    outputs, begin = [], 0
    for place, (_, start, count) in zip(places, rows):

        own_k, own_v = (kept[place].transpose(0, 1)[None] for kept in (keys, values))
        own_q = q[:, :, begin : begin + count]
        outputs.append(F.scaled_dot_product_attention(own_q, own_k, own_v, is_causal=True, enable_gqa=True))
        begin += count
    return torch.cat(outputs, dim=2)
