"""The steps of a run, drawn from a seed: plain data, the same for the same seed.

A step is ``{"ops": [op], "faults": [...]}``, as those of make chaos: an operation, and what breaks
while it is at work. It does not know what came of the steps before, so any part of a list can be
run alone. What is drawn as a part of a whole (an offset, a disk, a backup) is a fraction of what
is there then.
"""

import random

# (verb, weight)
VERBS = (
    ("write", 14), ("backup", 16), ("stop", 5), ("start", 6), ("migrate", 5), ("add_disk", 2),
    ("grow", 3), ("replace", 2), ("keep_copy", 2), ("put_back", 2), ("snapshot", 3), ("revert", 3),
    ("delete_snapshot", 1), ("rename", 2), ("save", 1), ("crash_qemu", 3), ("crash_libvirtd", 2),
    ("crash_host", 1), ("crash_target", 1), ("crash_guest", 2), ("prune", 2),
    ("verify", 1), ("restore", 2),
)  # fmt: skip
# while the runner backs up
FAULTS = ("puller", "keeper", "qemu", "libvirtd", "minion", "target_minion", "runner", "daemon",
          "target")  # fmt: skip
# between the begin of a backup and its reading
MEANWHILE = ("write", "keeper", "qemu", "libvirtd", "stop", "start")
AFTER_S = (0.2, 4)
CALM = 0.75  # the part of the backups in which nothing breaks
SECTOR = 512
# of a write, in sectors: some within a cluster, some over several
LONGEST = 700
# a list has one of these, and one that is slow
OFTEN, SLOW = ("vault", "sealed", "small"), "other"


def draw(seed, length=10):
    """The list of ``length`` steps of a seed."""
    rng = random.Random(seed)
    often = rng.choice(OFTEN)
    found = [_step({"verb": "write", "pieces": _pieces(rng)})]
    while len(found) < length:
        verb = rng.choices([verb for verb, _ in VERBS], [weight for _, weight in VERBS])[0]
        op = {"verb": verb}
        faults = []
        if verb == "write":
            op["pieces"] = _pieces(rng)
        elif verb == "backup":
            faults = _backup(rng, op, often)
        elif verb in ("grow", "replace", "put_back"):
            op["at"] = _at(rng)
        elif verb == "snapshot":
            op["disk_only"] = rng.random() < 0.5
        elif verb == "prune":
            op |= {"to": _to(rng, often), "last": rng.randrange(1, 4)}
        elif verb == "verify":
            op["to"] = _to(rng, often)
        elif verb == "restore":
            op |= {"to": _to(rng, often), "at": _at(rng), "itself": rng.random() < 0.3}
        found.append(_step(op, faults))
    return found


def _step(op, faults=()):
    return {"ops": [op], "faults": list(faults)}


def _at(rng):
    return min(round(rng.random(), 3), 0.999)


def _to(rng, often):
    return rng.choice((often, often, SLOW))


def _backup(rng, op, often):
    """Adds how; what breaks."""
    op["to"] = _to(rng, often)
    if rng.random() < 0.1:
        op["whole"] = True
    calm = rng.random() < CALM
    if rng.random() < 0.5:
        op["via"] = "parts"
        op["meanwhile"] = []
        if rng.random() < 0.5:
            op["meanwhile"].append({"verb": "write", "pieces": _pieces(rng)})
        if not calm:
            op["meanwhile"].append({"verb": rng.choice(MEANWHILE[1:])})
        return ()
    op["via"] = "runner"
    if calm:
        return ()
    return [{"kind": rng.choice(FAULTS), "after": round(rng.uniform(*AFTER_S), 2)}]


def _pieces(rng):
    """[disk, offset, sectors, byte]: None for zeros that take no room."""
    return [
        [_at(rng), _at(rng), rng.randrange(1, LONGEST), rng.choice((None, 0, *range(1, 256, 7)))]
        for _ in range(rng.randrange(1, 5))
    ]
