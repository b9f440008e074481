# kind: right
# about: An index of rows, made once for each matrix.

# %% solution="read_weights"
def rope_rows(weight, heads):
    dim = len(weight) // heads
    order = [h * dim + 2 * i + j for h in range(heads) for j in (0, 1) for i in range(dim // 2)]
    return weight.index_select(0, torch.tensor(order))


def read_weights(raw, config):
    readers = {"Q4_1": decode_q4_1, "Q8_0": decode_q8_0, "F32": lambda blocks: blocks.flatten().view(torch.float32)}
    weights = {name: readers[one.kind](one.blocks).reshape(one.shape) for name, one in raw.items()}
    for name in weights:
        if name.endswith("attn_q.weight"):
            weights[name] = rope_rows(weights[name], config.heads)
        if name.endswith("attn_k.weight"):
            weights[name] = rope_rows(weights[name], config.kv_heads)
    return weights
