# kind: wrong
# about: After a preemption the prompt is fed, and the tokens of the output are forgotten: fewer tokens than slots (K14).
# loses: engine_outputs, engine_blocks
# says: "engine_outputs": "rows stand for"

# %% edit="engine"
# replace
            tokens += request.tokens[start : start + count]
            positions += range(start, start + count)
# by
            fed = request.prompt[start : start + count] or request.output[-1:]
            tokens += fed
            positions += range(start, start + len(fed))
