# kind: wrong
# about: A prompt of which something is in the cache is taken for decoding.
# loses: queue_of_each
# says: "queue_of_each": "two of its tokens are not in the cache"

# %% solution="queue_of"
def queue_of(request):
    if request.finished:
        return "release"
    return "decode" if request.computed else "prefill"
