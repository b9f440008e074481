# kind: wrong
# about: A request with an output is taken for decoding, though it was preempted (K11).
# loses: queue_of_each
# says: "queue_of_each": "that it has an output proves nothing"

# %% solution="queue_of"
def queue_of(request):
    if request.finished:
        return "release"
    return "decode" if request.output else "prefill"
