# kind: wrong
# about: All rows go through the rank's first expert: as good as one expert a rank.
# loses: moe_routing, moe_values, moe_gradients, moe_router_gradient, moe_dropped, two_steps
# says: "moe_values": "the first expert of its rank"
# says: "moe_routing": "the router chose"

# %% edit="moe_layer"
# replace
    done = torch.cat([expert(part, *(experts[name][e] for name in EXPERT)) for e, part in enumerate(parts)])
# by
    done = torch.cat([expert(part, *(experts[name][0] for name in EXPERT)) for part in parts])
