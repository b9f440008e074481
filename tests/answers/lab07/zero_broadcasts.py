# kind: right
# about: Owners broadcast their piece, by their place in the group (group_src).

# %% edit="zero_one"
# replace
        dist.all_gather_single(flat, shard, group=self.group)
# by
        for owner, row in enumerate(flat.view(self.count, self.size)):
            if owner == self.rank:
                row.copy_(shard)
            dist.broadcast(row, group=self.group, group_src=owner)
