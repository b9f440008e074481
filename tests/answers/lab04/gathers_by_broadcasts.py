# kind: right
# about: Puts a block together by a broadcast from each owner.

# %% edit="zero_three"
# replace
            self.work = dist.all_gather_single(self.full, self.shard, async_op=True)
# by
            pieces = self.full.chunk(self.ranks)
            pieces[self.rank].copy_(self.shard)
            self.work = [dist.broadcast(piece, owner, async_op=True) for owner, piece in enumerate(pieces)]

# replace
            self.work.wait()
# by
            for work in self.work:
                work.wait()
