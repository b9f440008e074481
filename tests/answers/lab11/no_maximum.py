# kind: wrong
# about: exp without subtracting the maximum: infinity over infinity at logits above 88.
# loses: route_values
# says: "route_values": "NaN in the weights"

# %% edit="route"
# replace
    probs = logits.float().softmax(-1)
# by
    exps = logits.float().exp()
    probs = exps / exps.sum(-1, keepdim=True)
