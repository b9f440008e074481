# kind: right
# about: Waits for the future of each all-reduce, and divides in its callback.

# %% edit="bucketed_data_parallel"
# replace
        self.started.append((flat, dist.all_reduce(flat, async_op=True)))
# by
        done = dist.all_reduce(flat, async_op=True).get_future()
        self.started.append((flat, done.then(lambda future: future.value()[0] / dist.get_world_size())))

# replace
            work.wait()
            flat /= dist.get_world_size()
# by
            flat = work.wait()
