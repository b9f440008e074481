# kind: right
# about: Counts what is missing.

# %% solution="queue_of"
def queue_of(request):
    missing = len(request.prompt) + len(request.output) - request.computed
    if len(request.output) >= request.max_new or request.output[-1:] == [request.stop]:
        return "release"
    return "prefill" if missing > 1 or not request.output else "decode"
