# kind: wrong
# about: The server never sends the new parameters back.
# loses: server_values, server_traffic
# says: "server_values": "nothing new arrived"
# says: "server_traffic": "The server sent 0 bytes"

# %% edit="parameter_server_step"
# replace
        for worker in workers:
            dist.send(flat, worker)
# by

# replace
        dist.recv(flat, 0)
# by
