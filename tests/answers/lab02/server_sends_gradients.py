# kind: wrong
# about: The server takes the step but sends the gradient back, which workers take for parameters.
# loses: server_values
# says: "server_values": "worker 1"

# %% edit="parameter_server_step"
# replace
            dist.send(flat, worker)
# by
            dist.send(total / len(workers), worker)
