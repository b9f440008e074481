# kind: right
# about: The norm and the rotation written out.

# %% solution="forward"
def forward(own, config, tokens, positions, wanted, attend, parts, group=None):
    size, rank = dist.get_world_size(group), dist.get_rank(group)
    angle = positions[:, None].float() / config.rope_theta ** (torch.arange(0, config.head_dim, 2) / config.head_dim)

    def norm(x, weight):
        return weight * (x * (x.square().mean(-1, keepdim=True) + config.eps).rsqrt())

    def turned(x):
        a, b = x[..., : config.head_dim // 2], x[..., config.head_dim // 2 :]
        return torch.cat((a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()), -1)

    def heads(x, weight):
        y = parts["column_linear"](x, weight, None, group)
        return y.view(1, len(tokens), -1, config.head_dim).transpose(1, 2)

    table = own["token_embd.weight"]
    x = parts["vocab_embedding"](tokens.unsqueeze(0), table, rank * table.shape[0], group)
    for n in range(config.layers):
        layer = {name.split(".")[2]: one for name, one in own.items() if name.startswith(f"blk.{n}.")}
        y = norm(x, layer["attn_norm"])
        q, k, v = (heads(y, layer[name]) for name in ("attn_q", "attn_k", "attn_v"))
        y = attend(n, turned(q), turned(k), v, positions).transpose(1, 2).reshape(1, len(tokens), -1)
        x = x + parts["row_linear"](y, layer["attn_output"], None, group)
        y = norm(x, layer["ffn_norm"])
        y = F.silu(parts["column_linear"](y, layer["ffn_gate"], None, group)) * (
            parts["column_linear"](y, layer["ffn_up"], None, group)
        )
        x = x + parts["row_linear"](y, layer["ffn_down"], None, group)
    mine = norm(x[0].index_select(0, wanted), own["output_norm.weight"]) @ table.t()
    out = torch.empty(size * len(wanted), mine.shape[1])
    dist.all_gather_single(out, mine.contiguous(), group=group)
    return torch.cat(list(out.view(size, len(wanted), -1)), -1)
