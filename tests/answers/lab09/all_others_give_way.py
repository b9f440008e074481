# kind: wrong
# about: One block is missing, and everyone who came later is preempted.
# loses: schedule_preemption
# says: "schedule_preemption": "is preempted without need"
# edits: helper_methods

# %% edit="scheduler"
# replace
            victim = self.running[-1]
            self._preempt(victim)
            if victim is request:
# by
            later = self.running[self.running.index(request) + 1 :]
            for victim in reversed(later):
                self._preempt(victim)
            if not later:
                self._preempt(request)
