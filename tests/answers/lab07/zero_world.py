# kind: wrong
# about: ZeRO-1 over the whole world in place of the dp group: other tp ranks hold other parameters.
# loses: zero_one_values, mesh_step_losses, save_once, load_continues
# says: "zero_one_values": "the replicas are the dp group, not the world"

# %% edit="zero_one"
# replace
        self.parameters, self.group = dict(parameters), group
        self.rank, self.count = dist.get_rank(group), dist.get_world_size(group)
# by
        self.parameters, self.group = dict(parameters), None
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
