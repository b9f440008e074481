# kind: wrong
# about: Rounds the probabilities to bf16 before anything is done with them.
# loses: route_values
# says: "route_values": "weights"

# %% edit="route"
# replace
    probs = logits.float().softmax(-1)
# by
    probs = logits.softmax(-1).float()
