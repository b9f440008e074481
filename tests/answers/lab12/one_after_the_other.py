# kind: wrong
# about: Serves one request after the other.
# loses: served_tokens
# says: "served_tokens": "go through together"

# %% edit="serve"
# replace
    for request in requests:
        scheduler.add(request)
    while batch := scheduler.schedule():
# by
    left = list(requests)
    while left or scheduler.running or scheduler.waiting:
        if not scheduler.running and not scheduler.waiting:
            scheduler.add(left.pop(0))
        batch = scheduler.schedule()
