# kind: wrong
# about: ZeroThree clears the shard's gradient at the beginning of each forward, so only the last one counts (Z02).
# loses: zero3_values
# says: "zero3_values": "only the last backward pass counts"

# %% edit="zero_three"
# replace
        model.register_forward_pre_hook(lambda module, inputs: self.root.need())
# by
        model.register_forward_pre_hook(self._begin)

# replace
    def _need(self, index: int, following: int) -> None:
# by
    def _begin(self, module, inputs):
        for unit in [self.root, *self.blocks]:
            unit.grad.zero_()
        self.root.need()

    def _need(self, index: int, following: int) -> None:
