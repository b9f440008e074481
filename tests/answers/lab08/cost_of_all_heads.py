# kind: wrong
# about: Counts N heads in the cache, and a multiply-add once.
# loses: costs
# says: "costs": "there are only K key and value heads"

# %% solution="decode_costs"
def decode_costs(config, batch, context):
    h = config.hidden
    weights = config.layers * (2 * h * h + 2 * h * config.kv_heads * config.head_dim + 3 * h * config.ffn)
    weights += h * config.vocab_size
    cache = config.layers * batch * context * 2 * h * 4
    return {
        "cache_bytes": cache,
        "flops": batch * weights + 2 * config.layers * batch * h * context,
        "bytes_read": 4 * weights + cache,
    }
