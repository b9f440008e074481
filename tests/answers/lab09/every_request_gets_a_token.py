# kind: wrong
# about: Streams the prediction of unfinished prompts, too.
# loses: engine_outputs
# says: "engine_outputs": "alone it gets"

# %% edit="engine"
# replace
        had = [len(request.output) for request, _ in batch]
        self.scheduler.update(batch, predicted)
        return {
            request.id: request.output[-1] for (request, _), length in zip(batch, had) if len(request.output) > length
        }
# by
        self.scheduler.update(batch, predicted)
        return {request.id: token for (request, _), token in zip(batch, predicted)}
