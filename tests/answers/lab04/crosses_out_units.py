# kind: right
# about: Stage 3 in another shape: parameters are crossed out as their gradients come; frees before it reduces.

# %% solution="zero_three"
class Whole(ShardedUnit):
    def __init__(self, params):
        super().__init__(params)
        self.full, self.work, self.left = flatten(params, self.ranks), None, set(params)
        for param, view in zip(params, unflatten(self.full, [p.shape for p in params]), strict=True):
            param.data = view
        self.free()

    def start(self):
        if not self.full.untyped_storage().nbytes():
            self.full.untyped_storage().resize_(4 * self.full.numel())
            self.work = dist.all_gather_single(self.full, self.shard, async_op=True)

    def need(self):
        self.start()
        if self.work:
            self.work.wait()
        self.work = None

    def free(self):
        self.full.untyped_storage().resize_(0)

    def arrived(self, param):
        self.left.discard(param)
        if not self.left:
            self.finish()

    def finish(self):
        self.left = set(self.params)
        self.free()
        self.reduce_gradients()


class ZeroThree:
    def __init__(self, model, blocks, make_optimizer):
        self.model = model
        inside = {param for block in blocks for param in block.parameters()}
        self.root = Whole([p for p in model.parameters() if p not in inside])
        self.units = [Whole(list(block.parameters())) for block in blocks]
        model.register_forward_pre_hook(lambda *_: self.root.need())
        for i, block in enumerate(blocks):
            block.register_forward_pre_hook(lambda *_, i=i: self.enter(i, i + 1))
            block.register_forward_hook(lambda module, inputs, output, i=i: self.leave(i, output))
        lists = [[], []]
        for unit in [self.root, *self.units]:
            for all_pieces, pieces in zip(
                lists, owned_segments(unit.params, unit.shard, unit.grad, unit.rank), strict=True
            ):
                all_pieces.extend(pieces)
            for param in unit.params:
                param.register_post_accumulate_grad_hook(unit.arrived)
        self.optimizer = make_optimizer(*lists)

    def enter(self, i, ahead):
        self.units[i].need()
        if 0 <= ahead < len(self.units):
            self.units[ahead].start()

    def leave(self, i, output):
        self.units[i].free()
        output.register_hook(lambda grad: self.enter(i, i - 1))

    def step(self):
        for unit in [self.root, *self.units]:
            if len(unit.left) < len(unit.params):
                unit.finish()
        self.optimizer.step()
        for unit in [self.root, *self.units]:
            unit.grad.zero_()

    def full_parameters(self):
        for unit in [self.root, *self.units]:
            unit.need()
        copies = {name: param.detach().clone() for name, param in self.model.named_parameters()}
        for unit in [self.root, *self.units]:
            unit.free()
        return copies
