# kind: wrong
# about: A stop token in the prompt ends the request.
# loses: queue_of_each
# says: "queue_of_each": "a stop token counts in the output only"

# %% solution="queue_of"
def queue_of(request):
    if request.stop in request.tokens or len(request.output) == request.max_new:
        return "release"
    return "decode" if request.output and request.computed == len(request.tokens) - 1 else "prefill"
