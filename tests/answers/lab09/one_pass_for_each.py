# kind: wrong
# about: A pass through the model for each request, not for all.
# loses: engine_work
# says: "engine_work": "one is asked for, for all requests"

# %% solution="engine"
class Engine:
    def __init__(self, model, cache, scheduler):
        self.model, self.cache, self.scheduler = model, cache, scheduler

    @torch.no_grad()
    def step(self):
        batch, predicted = self.scheduler.schedule(), []
        had = [len(request.output) for request, _ in batch]
        for request, count in batch:
            start = request.computed
            tokens = torch.tensor([request.tokens[start : start + count]])
            attention = partial(paged_attention, self.cache, [(request.blocks, start, count)])
            logits = self.model(tokens, torch.arange(start, start + count)[None], attention=attention)
            predicted.append(int(logits[0, -1].argmax()))
        self.scheduler.update(batch, predicted)
        return {request.id: request.output[-1] for (request, _), n in zip(batch, had) if len(request.output) > n}
