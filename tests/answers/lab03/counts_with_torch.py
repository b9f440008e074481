# kind: wrong
# about: Has torch count a block.
# loses: flops_layer, flops_crossover
# says: "flops_layer": "layer_flops ran code of torch/utils/flop_counter.py; write it yourself, without"
# says: "flops_crossover": "crossover ran code of torch/utils/flop_counter.py; write it yourself, without"

# %% solution="layer_flops"
def layer_flops(sizes, batch, seq):
    config = TransformerConfig(**vars(sizes))
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        block = Block(config)
        block(torch.empty(batch, seq, config.hidden))
    counts = counter.get_flop_counts()
    attention = counts["Global"][torch.ops.aten.bmm]
    ffn = sum(counts["Block.feed_forward"].values())
    return {"projections": counter.get_total_flops() - attention - ffn, "attention": attention, "ffn": ffn}
