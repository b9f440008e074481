# kind: right
# about: Counts on a model without memory.

# %% solution="decode_costs"
def decode_costs(config, batch, context):
    with torch.device("meta"):
        model = Decoder(config)
    weights = sum(m.weight.numel() for m in model.modules() if isinstance(m, torch.nn.Linear))
    cache = 4 * 2 * config.layers * batch * context * config.hidden * config.kv_heads // config.heads
    attention = 2 * 2 * config.layers * batch * config.heads * config.head_dim * context
    return {"cache_bytes": cache, "flops": 2 * batch * weights + attention, "bytes_read": cache + 4 * weights}
