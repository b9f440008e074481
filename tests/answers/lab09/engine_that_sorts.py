# kind: right
# about: inference_mode; rows by id; predictions by a dictionary; tokens by keyword.

# %% solution="engine"
class Engine:
    def __init__(self, model, cache, scheduler):
        self.model, self.cache, self.scheduler, self.steps = model.eval(), cache, scheduler, 0

    def step(self):
        batch = self.scheduler.schedule()
        if len(batch) == 0:
            return {}
        self.steps += 1
        jobs = sorted(batch, key=lambda pair: -pair[0].id)
        tokens = [t for request, n in jobs for t in request.tokens[request.computed : request.computed + n]]
        positions = [i for request, n in jobs for i in range(request.computed, request.computed + n)]
        rows = [(request.blocks, request.computed, n) for request, n in jobs]

        def attention(layer, q, k, v, where):
            return paged_attention(self.cache, rows, layer, q, k, v, where)

        with torch.inference_mode():
            logits = self.model(torch.tensor(tokens)[None], positions=torch.tensor(positions), attention=attention)
        token, at = {}, -1
        for request, n in jobs:
            at += n
            token[request.id] = logits[0, at].argmax().item()
        before = {request.id: len(request.output) for request, _ in batch}
        self.scheduler.update(batch, [token[request.id] for request, _ in batch])
        return {r.id: r.output[-1] for r, _ in batch if len(r.output) != before[r.id]}
