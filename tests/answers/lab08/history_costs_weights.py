# kind: wrong
# about: Lets the whole context go through the weights.
# loses: costs
# says: "costs": "only the new token goes through the weights"

# %% solution="decode_costs"
def decode_costs(config: DecoderConfig, batch: int, context: int) -> dict[str, int]:
    h, kv = config.hidden, config.kv_heads * config.head_dim
    weights = config.layers * (2 * h * h + 2 * h * kv + 3 * h * config.ffn) + h * config.vocab_size
    cache = config.layers * batch * context * 2 * kv * 4
    flops = 2 * batch * context * weights + 4 * config.layers * batch * h * context
    return {"cache_bytes": cache, "flops": flops, "bytes_read": 4 * weights + cache}
