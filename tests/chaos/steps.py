"""The steps of a run, drawn from a seed: plain data, the same for the same seed.

A step is ``{"ops": [...], "faults": [...]}``: operations that begin at once, and what breaks
while they are at work. It does not know what came of the steps before: an operation on a guest that
is not there is a mistake of a user, which must end in one line. So any part of a list can be run
alone, which is what shrinking needs.

op: ``verb``, ``name`` (of the guest), ``via`` (runner, host, state) and what the verb takes.
fault: ``kind``, ``host`` or ``name``, ``after`` (seconds after the step began), ``lasts``.
"""

import json
import random

HOSTS = ("hv1", "hv2", "hv3")
DISKS = ("local", "pool", "thin", "shared", "network")
MOST = 5  # guests at a time
LUNS = 6

# (verb, weight, how many guests there must be)
VERBS = (
    ("init", 9, 0), ("migrate", 10, 1), ("purge", 4, 1), ("force_off", 5, 1), ("start", 5, 1),
    ("clone", 4, 1), ("rename", 4, 1), ("snapshot", 4, 1), ("revert", 3, 1),
    ("snapshot_delete", 2, 1), ("update", 4, 1), ("deployed", 3, 0), ("evacuate", 3, 1),
    ("restore", 3, 0), ("rebalance", 2, 1), ("repair", 2, 0), ("rotate", 2, 0),
    ("backup", 5, 1), ("backup_over", 5, 1), ("backup_new", 3, 1), ("backup_again", 3, 0),
    ("backup_confirm", 3, 1), ("backup_undo", 3, 1),
)  # fmt: skip
VIAS = {
    "init": ("runner", "runner", "host", "state"), "migrate": ("runner", "runner", "host", "state"),
    "purge": ("runner", "runner", "host", "state"), "force_off": ("runner", "host", "state"),
    "start": ("runner", "host", "state"), "snapshot": ("runner", "host", "state"),
    "revert": ("runner", "host"), "snapshot_delete": ("host",), "update": ("host", "state"),
}  # fmt: skip
# (kind, weight, seconds that it may last)
FAULTS = (
    ("kill_minion", 4, (0, 5)), ("kill_libvirtd", 4, (0, 0)), ("kill_qemu", 3, (0, 0)),
    ("kill_runner", 4, (0, 0)), ("kill_master", 2, (0, 5)), ("cut", 4, (3, 40)),
    ("slow", 2, (10, 40)), ("full", 3, (5, 30)), ("hang", 3, (5, 40)), ("reboot", 2, (1, 10)),
    ("clock", 2, (10, 40)),
)  # fmt: skip
# how long after the step's begin: most operations take some seconds
AFTER = (0.2, 7)
# what makes one more guest
MORE = ("init", "clone", "deployed", "backup_new", "backup_again")
CALM = 0.4  # the part of the steps in which nothing breaks
FITS = 0.9  # the part of the steps for backups that can be done


class _Expected:
    """What would be there had every operation done what it was asked for."""

    def __init__(self, seed):
        self.tag = f"s{seed}"
        self.guests = {}
        self.snapshots = {}
        self.backed, self.aside, self.gone = set(), set(), set()
        self.busy = set()  # what this step's operations are about
        self.made = 0

    def new_name(self):
        self.made += 1
        return f"{self.tag}-g{self.made}"

    def free_lun(self):
        taken = {about.get("lun") for about in self.guests.values()}
        return next((number for number in range(1, LUNS + 1) if number not in taken), None)


def draw(seed, length=10):
    """The list of ``length`` steps of a seed."""
    rng = random.Random(seed)
    expected = _Expected(seed)
    found = [{"ops": [_init(rng, expected)], "faults": []}]
    while len(found) < length:
        count = rng.choices((1, 2, 3), (6, 3, 1))[0]
        expected.busy, ops = set(), []
        for _ in range(count):
            ops.append(_op(rng, expected))
            expected.busy.update(_about(ops[-1]))
        faults = []
        if rng.random() > CALM:
            faults = [_fault(rng, expected, ops) for _ in range(rng.choices((1, 2), (5, 1))[0])]
        found.append({"ops": ops, "faults": faults})
    return found


def _op(rng, expected):
    if len(expected.guests) < 2 and rng.random() < 0.5:
        return _init(rng, expected)
    possible = [(verb, weight) for verb, weight, least in VERBS if len(expected.guests) >= least]
    if len(expected.guests) >= MOST:
        possible = [(v, w) for v, w in possible if v not in MORE]
    verb = rng.choices([v for v, _ in possible], [w for _, w in possible])[0]
    return globals()[f"_{verb}"](rng, expected)


def _about(op):
    return [*op.get("names", ()), *(op[word] for word in ("name", "new") if word in op)]


def _via(rng, verb):
    return rng.choice(VIAS.get(verb, ("runner",)))


def _guest(rng, expected):
    return rng.choice(sorted(expected.guests))


def _init(rng, expected):
    disk = rng.choice(DISKS)
    op = {"verb": "init", "name": expected.new_name(), "via": _via(rng, "init"), "disk": disk,
          "seeded": disk != "network" and rng.random() < 0.5}  # fmt: skip
    if disk == "network":
        op["lun"] = expected.free_lun() or 1
    if op["via"] != "runner" or rng.random() < 0.3:
        op["host"] = rng.choice(HOSTS)
    expected.guests[op["name"]] = {"disk": disk, "lun": op.get("lun")}
    return op


def _deployed(rng, expected):
    names = [expected.new_name() for _ in range(rng.choice((1, 2)))]
    disk = rng.choice(("local", "thin", "pool", "shared"))
    for name in names:
        expected.guests[name] = {"disk": disk}
    if rng.random() < 0.3:
        names += [name for name in sorted(expected.guests) if name not in names][:1]
    return {"verb": "deployed", "names": names, "via": "runner", "disk": disk}


def _migrate(rng, expected):
    op = {"verb": "migrate", "name": _guest(rng, expected), "via": _via(rng, "migrate")}
    if op["via"] != "runner" or rng.random() < 0.5:
        op["target"] = rng.choice(HOSTS)
    if rng.random() < 0.2:
        op["live"] = True
    if rng.random() < 0.7:
        op["eject"] = True
    if rng.random() < 0.3:
        op["bandwidth"] = rng.choice((8, 16, 32))
    return op


def _clone(rng, expected):
    name, new = _guest(rng, expected), expected.new_name()
    expected.guests[new] = {"disk": expected.guests[name]["disk"]}
    return {"verb": "clone", "name": name, "new": new, "via": "runner", "off": rng.random() < 0.8}


def _rename(rng, expected):
    name, new = _guest(rng, expected), expected.new_name()
    expected.guests[new] = expected.guests.pop(name)
    if name in expected.snapshots:
        expected.snapshots[new] = expected.snapshots.pop(name)
    for some in (expected.backed, expected.aside):
        if name in some:
            some.remove(name)
            some.add(new)
    return {"verb": "rename", "name": name, "new": new, "via": "runner", "off": rng.random() < 0.8}


def _purge(rng, expected):
    return _purge_of(rng, expected, _guest(rng, expected))


def _purge_of(rng, expected, name):
    del expected.guests[name]
    expected.aside.discard(name)
    expected.snapshots.pop(name, None)
    expected.gone.add(name)
    return {"verb": "purge", "name": name, "via": _via(rng, "purge")}


def _snapshot(rng, expected):
    name = _guest(rng, expected)
    known = expected.snapshots.setdefault(name, [])
    known.append(f"snap{len(known) + 1}")
    op = {"verb": "snapshot", "name": name, "snapshot": known[-1], "via": _via(rng, "snapshot")}
    if op["via"] != "runner" and rng.random() < 0.5:
        op["disk_only"] = True
    return op


def _of_snapshot(verb):
    def made(rng, expected):
        name = _guest(rng, expected)
        known = [n for n in sorted(expected.guests) if expected.snapshots.get(n)]
        if known and rng.random() < 0.8:
            name = rng.choice(known)
        snapshot = rng.choice(expected.snapshots.get(name) or ["snap1"])
        return {"verb": verb, "name": name, "snapshot": snapshot, "via": _via(rng, verb)}

    return made


_revert = _of_snapshot("revert")
_snapshot_delete = _of_snapshot("snapshot_delete")


def _update(rng, expected):
    """A size is asked for of the disk that an image was put on: beside a LUN that would be another
    disk, which takes the LUN's place."""
    what = rng.choice(({"mem": 144}, {"mem": 128}, {"cpu": 2}, {"cpu": 1}, {"size": 80}))
    name = _guest(rng, expected)
    if "size" in what and expected.guests[name]["disk"] == "network":
        what = {"mem": 144}
    return {"verb": "update", "name": name, "via": _via(rng, "update"), **what}


def _named(verb):
    def made(rng, expected):
        return {"verb": verb, "name": _guest(rng, expected), "via": _via(rng, verb)}

    return made


_start = _named("start")
_force_off = _named("force_off")


def _fit(rng, expected, some):
    """Mostly one of some to which nothing else happens in this step, when there is one; else None:
    mistakes are drawn, too."""
    fit = sorted((some & {*expected.guests}) - expected.busy)
    return rng.choice(fit) if fit and rng.random() < FITS else None


def _backup(rng, expected):
    """The disks of servers are in no backup."""
    some = {name for name, about in expected.guests.items() if about["disk"] != "network"}
    some -= expected.busy
    if not some and len(expected.guests) < MOST and rng.random() < FITS:
        return _init(rng, expected)
    name = _fit(rng, expected, some) or _guest(rng, expected)
    if name in some:
        expected.backed.add(name)
    return {"verb": "backup", "name": name, "via": "runner"}


def _of_backup(rng, expected, some):
    """A guest whose backup can be had; None where one has to be made first."""
    name = _fit(rng, expected, some)
    return name or (_guest(rng, expected) if rng.random() > FITS else None)


def _backup_over(rng, expected):
    """What has snapshots, or was put aside before, is refused."""
    held = expected.aside | {name for name, some in expected.snapshots.items() if some}
    name = _of_backup(rng, expected, expected.backed - held)
    if name is None:
        return _backup(rng, expected)
    if name in expected.backed:
        expected.aside.add(name)
    return {"verb": "backup_over", "name": name, "via": "runner"}


def _backup_new(rng, expected):
    name = _of_backup(rng, expected, expected.backed)
    if name is None:
        return _backup(rng, expected)
    new = expected.new_name()
    expected.guests[new] = {"disk": "local"}
    return {"verb": "backup_new", "name": name, "new": new, "via": "runner"}


def _backup_again(rng, expected):
    """A guest that is gone; without one a mistake, or one goes whose backup is there."""
    fit = sorted((expected.gone & expected.backed) - expected.busy)
    if not fit and rng.random() < FITS:
        name = _fit(rng, expected, expected.backed)
        return _purge_of(rng, expected, name) if name else _init(rng, expected)
    name = rng.choice(fit) if fit else f"{expected.tag}-g1"
    expected.gone.discard(name)
    expected.guests.setdefault(name, {"disk": "local"})
    return {"verb": "backup_again", "name": name, "via": "runner"}


def _of_aside(verb):
    def made(rng, expected):
        name = _of_backup(rng, expected, expected.aside)
        if name is None:
            return _backup_over(rng, expected)
        expected.aside.discard(name)
        return {"verb": verb, "name": name, "via": "runner"}

    return made


_backup_confirm = _of_aside("backup_confirm")
_backup_undo = _of_aside("backup_undo")


def _of_host(verb):
    return lambda rng, expected: {"verb": verb, "host": rng.choice(HOSTS), "via": "runner"}


_evacuate = _of_host("evacuate")
_restore = _of_host("restore")


def _alone(verb):
    return lambda rng, expected: {"verb": verb, "via": "runner"}


_rebalance = _alone("rebalance")
_repair = _alone("repair")
_rotate = _alone("rotate")


def _fault(rng, expected, ops):
    kind, _, lasts = rng.choices(FAULTS, [weight for _, weight, _ in FAULTS])[0]
    fault = {"kind": kind, "after": round(rng.uniform(*AFTER), 1)}
    if lasts != (0, 0):
        fault["lasts"] = round(rng.uniform(*lasts), 1)
    if kind == "kill_qemu":
        names = [op["name"] for op in ops if "name" in op] or sorted(expected.guests) or ["none"]
        fault["name"] = rng.choice(names)
    elif kind == "kill_runner":
        fault["op"] = rng.randrange(len(ops))
    elif kind == "clock":
        fault["host"] = rng.choice((*HOSTS, "master"))
        fault["by"] = rng.choice((-7200, -90, 90, 7200, 40 * 86400))
    elif kind != "kill_master":
        fault["host"] = rng.choice(HOSTS)
    return fault


def dumps(steps):
    """The steps as text, one on a line: JSON, and what a test can hold."""
    lines = ",\n".join(f"  {json.dumps(step)}" for step in steps)
    return f"[\n{lines}\n]\n"


def loads(text):
    """The steps of a text. Raises ValueError, with what is wrong, for one that has none."""
    steps = json.loads(text)
    if not isinstance(steps, list) or not all(
        isinstance(step, dict) and isinstance(step.get("ops"), list) for step in steps
    ):
        raise ValueError("a list of steps is wanted, each with a list of ops")
    return [{"ops": step["ops"], "faults": step.get("faults", [])} for step in steps]
