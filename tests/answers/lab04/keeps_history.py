# kind: wrong
# about: The flat vector is still part of the autograd graph.
# loses: flatten_values
# says: "flatten_values": "has a gradient history"

# %% edit="flatten"
# replace
    flat = torch.cat([tensor.detach().reshape(-1) for tensor in tensors])
# by
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])


# %% edit="sharded_unit"
# replace
        self.shard = flatten(params, self.ranks).chunk(self.ranks)[self.rank].clone()
# by
        self.shard = flatten(params, self.ranks).detach().chunk(self.ranks)[self.rank].clone()


# %% edit="zero_three"
# replace
        self.full, self.work, self.ready = flatten(params, self.ranks), None, set()
# by
        self.full, self.work, self.ready = flatten(params, self.ranks).detach(), None, set()
