# kind: wrong
# about: Shards the optimizer's state, but keeps the whole parameters beside: stage 2 under the name of stage 3.
# loses: zero3_rest, zero3_peak
# says: "zero3_rest": "at rest after a step: rank 0 holds"

# %% edit="zero_three"
# replace
        self.full, self.work, self.ready = flatten(params, self.ranks), None, set()
# by
        self.full, self.work, self.ready = flatten(params, self.ranks), None, set()
        self.spare = flatten(params, self.ranks)
