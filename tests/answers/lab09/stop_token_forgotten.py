# kind: wrong
# about: Only the number of tokens ends a request.
# loses: queue_of_each
# says: "queue_of_each": "its last token is its stop token"

# %% solution="queue_of"
def queue_of(request):
    if len(request.output) == request.max_new:
        return "release"
    return "decode" if request.output and request.computed == len(request.tokens) - 1 else "prefill"
