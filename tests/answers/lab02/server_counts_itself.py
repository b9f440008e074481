# kind: wrong
# about: The server divides by p; it has no gradient of its own.
# loses: server_values
# says: "server_values": "divided by p = 3, although only 2 workers have gradients"

# %% edit="parameter_server_step"
# replace
        flat -= lr * total / len(workers)
# by
        flat -= lr * total / dist.get_world_size()
