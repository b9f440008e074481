# kind: wrong
# about: C25, Z17: owners broadcast their piece with their place in the group as source, which is a rank of the world.
# loses: zero_one_values, mesh_step_losses, save_once, load_continues

# %% edit="zero_one"
# replace
        dist.all_gather_single(flat, shard, group=self.group)
# by
        for owner in range(self.count):
            piece = flat[owner * self.size : (owner + 1) * self.size]
            if owner == self.rank:
                piece.copy_(shard)
            dist.broadcast(piece, src=owner, group=self.group)
