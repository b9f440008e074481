# kind: wrong
# about: Z01: each owner updates its piece; the others never get the new values.
# loses: zero_one_values, zero_one_memory, mesh_step_losses, save_once, load_continues
# says: "zero_one_values": "new values do not reach every rank"

# %% edit="zero_one"
# replace
        for name, value in self.gathered(self.shard).items():
            self.parameters[name].data.copy_(value)
# by
        flat = self.flatten({name: p.detach() for name, p in self.parameters.items()})
        self.piece(flat).copy_(self.shard)
        pieces = flat[: self.numel].split([p.numel() for p in self.parameters.values()])
        for p, piece in zip(self.parameters.values(), pieces):
            p.data.copy_(piece.view_as(p))
