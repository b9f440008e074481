# kind: wrong
# about: The request that came first is preempted.
# loses: schedule_preemption
# says: "schedule_preemption": "The latest arrival gives way"
# edits: helper_methods

# %% edit="scheduler"
# replace
        self.waiting.insert(0, request)  # it came before all that wait
# by
        self.waiting.append(request)
        self.waiting.sort(key=lambda request: request.id)
# replace
            victim = self.running[-1]
# by
            victim = self.running[0]
# replace
        return batch
# by
        return [(request, count) for request, count in batch if request in self.running]
