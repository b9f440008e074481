# kind: wrong
# about: Waits for its sends only at the end of the step: all sent activations stay alive.
# loses: run_memory
# says: "run_memory": "rank 0 held the activations of 6 micro-batches at once; its schedule needs 2."

# %% edit="run_schedule"
# replace
        if ("F", stage + 1, k) in sending:
            sending.pop(("F", stage + 1, k))[0].wait()
# by
