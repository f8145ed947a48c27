"""Shorten a failing list of steps: the rest fails, and each of its steps is needed."""


def shrink(steps, fails, say=lambda text: None):
    """The shortest list found. fails(steps): does it break an invariant? It is asked as often
    as ends are worth it, and may raise StopIteration to end the search: the best so far counts."""
    best = steps
    try:
        best = _spared(best, fails, say)
        best = _smaller(best, fails, say)
    except StopIteration:
        say("no time is left to shrink further")
    except _Best as exc:
        best = exc.steps
    return best


class _Best(Exception):
    """The search was ended, with the best so far."""

    def __init__(self, steps):
        super().__init__()
        self.steps = steps


def _ask(fails, steps, best):
    try:
        return fails(steps)
    except StopIteration:
        raise _Best(best) from None


def _spared(steps, fails, say):
    """Without the steps that are not needed: halves first, then single ones."""
    # what comes after the failure is not needed, and was cut by whoever saw it
    size = max(1, len(steps) // 2)
    while True:
        at = 0
        while at < len(steps):
            fewer = steps[:at] + steps[at + size :]
            if fewer and _ask(fails, fewer, steps):
                steps = fewer
                say(f"{len(steps)} steps are enough")
            else:
                at += size
        if size == 1:
            return steps
        size //= 2


def _smaller(steps, fails, say):
    """Without the operations and faults that are not needed."""
    for number in range(len(steps) - 1, -1, -1):
        for kind in ("faults", "ops"):
            at = len(steps[number][kind]) - 1
            while at >= 0:
                step = dict(steps[number])
                step[kind] = step[kind][:at] + step[kind][at + 1 :]
                if not step["ops"]:
                    break
                step["faults"] = _renumbered(step["faults"], at if kind == "ops" else None)
                fewer = [*steps[:number], step, *steps[number + 1 :]]
                if _ask(fails, fewer, steps):
                    steps = fewer
                    say(f"step {number + 1} without one of its {kind}")
                at -= 1
    return steps


def _renumbered(faults, gone):
    """The faults of a step whose operation ``gone`` was taken out."""
    found = []
    for fault in faults:
        if gone is None or "op" not in fault or fault["op"] < gone:
            found.append(fault)
        elif fault["op"] > gone:
            found.append({**fault, "op": fault["op"] - 1})
    return found
