# kind: right
# about: Hooks on the AccumulateGrad nodes, as older frameworks do; divides before the all-reduce; one broadcast for all float buffers.

# %% edit="bucketed_data_parallel"
# replace
        self.model, self.sync = model, True
# by
        self.model, self.sync, self.nodes = model, True, []

# replace
            p.register_post_accumulate_grad_hook(self._ready)
# by
            node = p.expand_as(p).grad_fn.next_functions[0][0]
            node.register_hook(lambda *_, p=p: self._ready(p))
            self.nodes.append(node)

# replace
        flat = torch.cat([part.reshape(-1) for part in parts])
# by
        flat = torch.cat([part.reshape(-1) / dist.get_world_size() for part in parts])

# replace
            flat /= dist.get_world_size()
# by

# replace
        for buffer in self.model.buffers():
            dist.broadcast(buffer, 0)
# by
        for dtype in {x.dtype: 0 for x in self.model.buffers()}:
            same = [x for x in self.model.buffers() if x.dtype == dtype]
            flat = torch.cat([x.flatten() for x in same])
            dist.broadcast(flat, 0)
            for x, part in zip(same, flat.split([x.numel() for x in same])):
                x.copy_(part.view(x.shape))
