# kind: wrong
# about: The bias is broadcast to [N, N, F] and summed: fine for one row only (E16).
# loses: moe_values, moe_gradients, moe_router_gradient, moe_dropped, two_steps

# %% edit="moe_layer"
# replace
    done = torch.cat([expert(part, *(experts[name][e] for name in EXPERT)) for e, part in enumerate(parts)])
# by
    done = []
    for e, part in enumerate(parts):
        inner = F.gelu(part @ experts["up"][e].t() + experts["up_bias"][e].expand(max(len(part), 1), len(part), -1).sum(0))
        done.append(inner @ experts["down"][e].t() + experts["down_bias"][e])
    done = torch.cat(done)
