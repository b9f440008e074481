# kind: wrong
# about: The k best, smallest first: the priority of first choices is turned round.
# loses: route_values, route_gradients, moe_dropped, two_steps
# says: "route_values": "stand the wrong way round"

# %% edit="route"
# replace
    weights, ids = probs.topk(k, dim=-1)
# by
    ids = probs.argsort(-1)[:, -k:]
    weights = probs.gather(-1, ids)
