"""An operation of a step as the command that an operator types on the master, and its end."""

import json
import os
import re
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

from tests.chaos import world
from tests.lab import process

TRACE = "Traceback (most recent call last)"
# beyond every wait of runner.md that these guests can come to, twice over where two follow
BOUND_S = 420
MEMORY = 128  # MiB; the kernel does not boot with much less


@dataclass
class Done:
    """How an operation ended. rc: None: it was killed by us; late: it went on past its bound."""

    op: dict
    rc: int | None
    out: str
    err: str
    seconds: float
    late: bool = False

    @property
    def killed(self):
        return self.rc is None

    @property
    def ok(self):
        return self.rc == 0

    def said(self):
        """Its answer in few words."""
        found = re.findall(r'"comment": "((?:[^"\\]|\\.)*)"', self.out)
        # what a host answers that did it is long and says nothing
        text = "; ".join(found) or (not self.ok and (self.out.strip() or self.err.strip())) or ""
        return text[-400:].replace("\n", " ")


def boot():
    """The counting guest's kernel."""
    folder = world.BOOT
    return {"kernel": f"{folder}/kernel", "initrd": f"{folder}/initrd",
            "cmdline": "quiet panic=-1 dirty=0"}  # fmt: skip


def disk_arguments(op):
    """What virt.init is told of the disk."""
    kind = op["disk"]
    if kind == "folder":
        disk = {"name": "system", "size": 64, "pool": world.LOCAL}
        return {"image": world.IMAGE, "disk": None, "disks": [disk]}
    if kind == "network":
        lun = {"name": "system", "format": "raw", "cache": "none",
               "source": {"protocol": "iscsi", "name": f"{world.iqn(op['lun'])}/1",
                          "hosts": [f"{world.MASTER}:3260"]}}  # fmt: skip
        return {"image": None, "disk": None, "disks": [lun]}
    found = {"image": world.IMAGE, "disk": "local" if kind == "thin" else kind}
    return {**found, "enable_qcow": True} if kind == "thin" else found


def command(op, where):
    """The argument list of an operation. where(name): the host that has the guest by libvirt."""
    verb, via = op["verb"], op["via"]
    words, named = globals()[f"_{verb}"](op)
    if via == "runner":
        argv = ["salt-run", "--out=json", words[0]]
    else:
        host = op.get("host") or where(op["name"])
        argv = ["salt", "-t", "30", "--out=json", host]
        argv += ["state.single"] if via == "state" else []
        argv += [words[0]]
    argv += [_word(word) for word in words[1:]]
    return argv + [f"{key}={_word(value)}" for key, value in named.items() if value is not ...]


def before(op, where):
    """The commands that a person would type before it. where: as for :func:`command`."""
    if op.get("off"):
        yield ["salt-run", "virt.force_off", op["name"]]
    if op.get("seeded") and op["via"] != "runner":
        yield ["salt-run", "virt.authorize", op["name"], op["host"]]
    if op.get("eject"):  # a volume for cloud-init stays where it is, and keeps its guest there
        yield ["salt", "-t", "30", where(op["name"]), "virt.seed_eject", op["name"]]


def _word(value):
    return value if isinstance(value, str) else json.dumps(value)


def _init(op):
    disk = disk_arguments(op)
    named = {"boot": boot(), "seed": "cloud-init" if op.get("seeded") else False}
    image = disk.pop("image")
    if op["via"] == "runner":
        return ["virt.init", op["name"], 1, MEMORY, image], {
            **disk, **named, "host": op.get("host", ...)}  # fmt: skip
    if op["via"] == "host":
        return ["virt.init", op["name"], 1, MEMORY], {**disk, **named, "image": image or ...}
    disk["disk_profile"] = disk.pop("disk") or ...
    return ["virt.running", op["name"]], {
        **disk, **named, "cpu": 1, "mem": MEMORY, "image": image or ...}  # fmt: skip


def _deployed(op):
    disk = disk_arguments(op)
    one = {**disk, "cpu": 1, "mem": MEMORY, "boot": boot(), "seed": False}
    return ["virt.deployed", dict.fromkeys(op["names"], one)], {"deployment": "chaos"}


def _migrate(op):
    named = {"live": op.get("live", ...), "max_bandwidth": op.get("bandwidth", ...)}
    if op["via"] == "runner":
        return ["virt.migrate", op["name"], *filter(None, [op.get("target")])], named
    verb = "virt.migrated" if op["via"] == "state" else "virt.migrate"
    return [verb, op["name"]], {"target": op["target"], **named}


def _purge(op):
    verb = "virt.absent" if op["via"] == "state" else "virt.purge"
    return [verb, op["name"]], {"force": True} if op["via"] == "runner" else {}


def _force_off(op):
    verb = {"runner": "virt.force_off", "host": "virt.stop", "state": "virt.powered_off"}
    return [verb[op["via"]], op["name"]], {}


def _start(op):
    if op["via"] == "state":
        return ["virt.running", op["name"]], {"update": False}
    return ["virt.start", op["name"]], {}


def _clone(op):
    return ["virt.clone", op["name"], op["new"]], {}


def _rename(op):
    return ["virt.rename", op["name"], op["new"]], {}


def _snapshot(op):
    more = {"disk_only": True} if op.get("disk_only") else {}
    if op["via"] == "host":
        return ["virt.snapshot"], {"domain": op["name"], "name": op["snapshot"], **more}
    return ["virt.snapshot", op["name"]], {"snapshot": op["snapshot"], **more}


def _revert(op):
    verb = "virt.revert" if op["via"] == "runner" else "virt.revert_snapshot"
    return [verb, op["name"], op["snapshot"]], {}


def _snapshot_delete(op):
    return ["virt.delete_snapshots", op["name"], op["snapshot"]], {}


def _update(op):
    named = {key: op[key] for key in ("mem", "cpu") if key in op}
    if "size" in op:
        named["disks"] = [{"name": "system", "size": op["size"]}]
    if op["via"] == "state":
        return ["virt.defined", op["name"]], named
    return ["virt.update", op["name"]], named


def _evacuate(op):
    return ["virt.evacuate", op["host"]], {}


def _restore(op):
    return ["virt.restore", op["host"]], {}


def _backup(op):
    return ["virt.backup", op["name"]], {}


def _backup_over(op):
    return ["virt.backup_restore", op["name"]], {"in_place": True, "stop": True}


def _backup_new(op):
    return ["virt.backup_restore", op["name"]], {"new": op["new"]}


def _backup_again(op):
    return ["virt.backup_restore", op["name"]], {}


def _backup_confirm(op):
    return ["virt.backup_confirm", op["name"]], {"host": op.get("host", ...)}


def _backup_undo(op):
    return ["virt.backup_undo", op["name"]], {"stop": True, "host": op.get("host", ...)}


def _rebalance(op):
    return ["virt.rebalance"], {"apply": True}


def _repair(op):
    return ["virt.repair"], {"apply": True}


def _rotate(op):
    return ["virt.rotate_ca"], {}


class Running:
    """An operation that is at work."""

    def __init__(self, lab, op, where):
        self.op, self.began, self.was_killed = op, time.monotonic(), False
        for argv in before(op, where):
            lab.exec("master", argv, check=False, timeout=200)
        self.argv = command(op, where)
        # files, not pipes: what it leaves behind may hold them open
        self.out, self.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            lab.machine("master").argv(self.argv), stdin=subprocess.DEVNULL, stdout=self.out,
            stderr=self.err, start_new_session=True,
        )  # fmt: skip

    def kill(self):
        """kill -9 of salt-run or salt itself: what nsenter started."""
        if self.process.poll() is None:
            self.was_killed = True
            for pid in process.children(self.process.pid) or [self.process.pid]:
                process.kill(pid)

    def wait(self, extra_s=0):
        """Its Done; killed when it goes on past its bound."""
        bound, late = BOUND_S + extra_s - (time.monotonic() - self.began), False
        try:
            rc = self.process.wait(max(1, bound))
        except subprocess.TimeoutExpired:
            late = True
            for pid in process.children(self.process.pid):
                process.kill(pid)
            os.kill(self.process.pid, signal.SIGKILL)
            rc = self.process.wait()
        texts = []
        for file in (self.out, self.err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
            file.close()
        rc = None if self.was_killed and not late else rc
        return Done(self.op, rc, *texts, round(time.monotonic() - self.began, 1), late)


def wrong_form(done):
    """What is wrong with how a failure was told, by the rule: one line, exit code 1."""
    if done.killed:
        return []
    about = f"{done.op['verb']} {done.op.get('name', done.op.get('host', ''))}"
    found = []
    if done.late:
        found.append(f"wait: {about} had not ended after {done.seconds:.0f} s")
    if TRACE in done.out or TRACE in done.err:
        found.append(f"traceback: {about}: {(done.out + done.err)[-1500:]}")
    # the others are salt's own word for minions that failed or did not answer
    allowed = (0, 1) if done.op["via"] == "runner" else (0, 1, 2, 11, 20)
    if not done.late and done.rc not in allowed:
        found.append(f"exit: {about} ended with {done.rc}: {done.said()}")
    if done.rc:
        comments = re.findall(r'"comment": "((?:[^"\\]|\\.)*)"', done.out)
        # a state may have several findings, each in a line
        found += [
            f"lines: {about}: {text}" for text in comments
            if "\\n" in text and done.op["via"] == "runner"
        ]  # fmt: skip
        if not done.late and not done.out.strip() and not done.err.strip():
            found.append(f"silent: {about} failed without a word")
    if done.rc == 0 and re.search(r'"result": false', done.out):
        found.append(f"exit: {about} ended with 0 and said: {done.said()}")
    return found
