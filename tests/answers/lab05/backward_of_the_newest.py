# kind: wrong
# about: The backward always takes the newest micro-batch, whatever the schedule says.
# loses: run_loss_scaling, run_one_f_one_b, run_interleaved, run_two_batches, run_messages, run_memory
# says: "run_one_f_one_b": "ran 0B1 where its list says 0B0"

# %% edit="run_schedule"
# replace
        x, y = held.pop((stage, k))
# by
        x, y = held.pop([key for key in held if key[0] == stage][-1])
