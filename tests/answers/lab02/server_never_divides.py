# kind: wrong
# about: The server takes the sum of the workers' gradients.
# loses: server_values
# says: "server_values": "the sum over the 2 workers was taken, never divided"

# %% edit="parameter_server_step"
# replace
        flat -= lr * total / len(workers)
# by
        flat -= lr * total
