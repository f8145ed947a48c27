"""Perform a list of steps with one guest of the lab, and check the invariants meanwhile."""

import base64
import gzip
import time
from collections import Counter

from tests.backup import world
from tests.backup.model import Model, digest
from tests.backup.world import FOLDERS, IMAGES, MIB, Ended

SIZE = 4 * MIB
MOST_DISKS, MOST_BYTES = 4, 8 * MIB
AT = "/machine/peripheral/virtio-disk{}/virtio-backend"
NO_FAULT = ()


class Broken(Exception):
    """What has to hold does not."""


class Run:
    """One list of steps with one guest. said: Counter of what became of them."""

    def __init__(self, there, say=print):
        self.world, self.say, self.said = there, say, Counter()
        self.model = Model(world.guest_name(), next(iter(there.hypervisors)))
        self.uuids, self.targets = set(), []

    @property
    def host(self):
        """The hypervisor that has the guest."""
        return self.world.hypervisors[self.model.host]

    def all(self, given):
        """Runs them, and looks at what there is. Raises Broken."""
        used = {op["to"] for step in given for op in step["ops"] if "to" in op}
        self.targets = [to for to in FOLDERS if to in used] or ["vault"]
        self._make()
        for number, step in enumerate(given, 1):
            for op in step["ops"]:
                began = time.monotonic()
                how = getattr(self, f"_{op['verb']}")(op, step["faults"]) or "done"
                about = [op["verb"], op.get("via"), op.get("to"), *op.get("meanwhile", ())]
                about += step["faults"]
                words = " ".join(str(one) for one in about if one and "pieces" not in str(one))
                took = f"{time.monotonic() - began:.1f} s"
                self.say(f"  {number}. {words}: {how} ({took})")
                self.said[f"{op['verb']}: {how.partition(':')[0]}"] += 1
                self._same(f"after {op['verb']}")
        self._end()

    # the guest

    def _make(self):
        model = self.model
        first = [model.add(SIZE) for _ in range(2)]
        disks = [{"name": name, "size": SIZE // MIB, "format": "qcow2"} for name in first]
        made = self._call(
            "virt.init", model.name, 1, 16, nic=None, disk=None, disks=disks, seed=False,
            hypervisor="qemu",
        )  # fmt: skip
        self.uuids.add(made["uuid"])

    def _call(self, function, *args, **kwargs):
        """What the guest's host answers; Broken when it is an error."""
        answer, wrong = self._ask(self.host, function, *args, **kwargs)
        if wrong:
            raise Broken(f"refused: {function}: {wrong}")
        return answer

    def _ask(self, host, function, *args, **kwargs):
        answer, wrong = host.ask(function, *args, **kwargs)
        if wrong and len(wrong.splitlines()) > 1:
            raise Broken(f"lines: {function}: {wrong}")
        return answer, wrong

    def _run(self, function, *args, **kwargs):
        """(whether it is done, what was said) of a verb of the runner."""
        try:
            found = self.world.master.ask(function, *args, **kwargs)
        except AssertionError as exc:
            raise Broken(f"traceback: {function}: {exc}") from None
        parts = [one for one in found.values() if isinstance(one, dict)]
        wrong = [one.get("comment", "") for one in parts if one.get("result") is not True]
        if any("\n" in one for one in wrong):
            raise Broken(f"lines: {function}: {wrong}")
        return not wrong and bool(parts), "; ".join(wrong) or str(found)

    def _sh(self, script, check=True):
        code, said = self.host.shell(script)
        if check and code:
            raise Broken(f"tool: {script}: {said}")
        return said

    def _files(self):
        """Disk to its file."""
        said = self._sh(f"virsh -q domblklist {self.model.name}")
        rows = [line.split(None, 1) for line in said.splitlines() if line.strip()]
        return {row[0]: row[1].strip() for row in rows}

    def _truth(self):
        """Disk to what it holds, as the files have it. A guest that runs has flushed it."""
        script = "set -e\n"
        if self.model.runs:
            for number in range(len(self.model.disks)):
                script += self._hmp(number, "flush")
        files = self._files()
        for path in files.values():
            script += f"qemu-img convert -U -O raw {path} /dev/shm/bkr; gzip -1c /dev/shm/bkr | "
            script += "base64 -w0; echo; rm -f /dev/shm/bkr\n"
        lines = [line for line in self._sh(script).splitlines() if line.startswith("H4sI")]
        return {
            target: bytearray(gzip.decompress(base64.b64decode(line)))
            for target, line in zip(files, lines, strict=True)
        }

    def _hmp(self, number, command):
        at = AT.format(number)
        told = f'qemu-io -d {at} "{command}"'
        return f"virsh -q qemu-monitor-command {self.model.name} --hmp '{told}'\n"

    def _same(self, when):
        """The disks hold what they have to, and the guest is as it was left."""
        model = self.model
        state = self._sh(f"virsh domstate {model.name}", check=False).strip()
        if (state == "running") is not model.runs:
            raise Broken(f"state: {when} the guest is {state}")
        there = {target: digest(held) for target, held in self._truth().items()}
        if there != model.digests():
            wrong = [one for one, found in model.digests().items() if there.get(one) != found]
            raise Broken(f"disk: {when} {wrong or sorted(there)} holds something else")

    def _as_it_is(self):
        """After a crash the files say what was kept."""
        model = self.model
        model.runs = self._sh(f"virsh domstate {model.name}").strip() == "running"
        model.held = self._truth()

    # the steps

    def _write(self, op, _faults=NO_FAULT):
        per_disk = {}
        for piece in op["pieces"]:
            target, command = self.model.put(piece)
            per_disk.setdefault(target, []).append(command)
        files = None if self.model.runs else self._files()
        for target, commands in per_disk.items():
            if self.model.runs:
                number = self.model.targets.index(target)
                script = "".join(self._hmp(number, command) for command in commands)
            else:
                words = " ".join(f"-c '{command}'" for command in commands)
                script = f"qemu-io -f qcow2 {words} {files[target]}"
            said = self._sh(script)
            # what qemu-io says of a guest that runs is in QEMU's own log
            if said.strip() if self.model.runs else said.count("wrote") != len(commands):
                raise Broken(f"tool: {script}: {said}")

    def _stop(self, _op, _faults=NO_FAULT):
        if not self.model.runs:
            return "is off"
        # it flushes, as a guest that shuts down would
        self._call("virt.stop", self.model.name)
        self.model.runs = False

    def _start(self, _op, _faults=NO_FAULT):
        if self.model.runs:
            return "runs"
        self._call("virt.start", self.model.name)
        self.model.runs = True

    def _save(self, _op, _faults=NO_FAULT):
        """Its memory goes to a file, and it comes back from that."""
        if not self.model.runs:
            return "is off"
        self._sh(f"virsh -q managedsave {self.model.name} && virsh -q start {self.model.name}")

    def _migrate(self, _op, _faults=NO_FAULT):
        model = self.model
        [other] = set(self.world.hypervisors) - {model.host}
        good, said = self._run("virt.migrate", model.name, other)
        if good:
            model.host = other
            model.copies.clear()
            return "live" if model.runs else "cold"
        return f"refused: {said}"

    def _update(self, **more):
        disks = [
            {"name": name, "size": size // MIB, "format": "qcow2"}
            for name, size in self.model.disks.items()
        ]
        return self._ask(self.host, "virt.update", self.model.name, disks=disks, **more)

    def _add_disk(self, _op, _faults=NO_FAULT):
        model = self.model
        if len(model.disks) >= MOST_DISKS:
            return "enough"
        name = model.add(SIZE)
        answer, wrong = self._update()
        if wrong or answer.get("errors"):
            del model.disks[name]
            model.held = {one: model.held[one] for one in model.targets}
            return f"refused: {wrong or answer['errors']}"

    def _grow(self, op, _faults=NO_FAULT):
        model = self.model
        target = model.target(op["at"])
        name, before = model.disk(target), model.disks[model.disk(target)]
        if before >= MOST_BYTES:
            return "enough"
        model.disks[name] = before + MIB
        answer, wrong = self._update()
        if wrong or answer.get("errors"):
            model.disks[name] = before
            return f"refused: {wrong or answer['errors']}"
        model.grow(target, before + MIB)
        model.copies.pop(target, None)

    def _layered(self):
        """Whether some snapshot is there: a disk has more than a file then."""
        return bool(self._sh(f"virsh -q snapshot-list --name {self.model.name}").strip())

    def _replace(self, op, _faults=NO_FAULT):
        """Another file of the same name, empty."""
        model = self.model
        if model.runs or self._layered():
            return "not now"
        target = model.target(op["at"])
        path, size = self._files()[target], len(model.held[target])
        self._sh(f"rm {path} && qemu-img create -q -f qcow2 {path} {size}")
        model.held[target] = bytearray(size)

    def _keep_copy(self, _op, _faults=NO_FAULT):
        """Copies of the files, kept aside."""
        model = self.model
        if model.runs or self._layered():
            return "not now"
        for target, path in self._files().items():
            self._sh(f"cp {path} /root/bkr-{target}")
            model.copies[target] = bytes(model.held[target])

    def _put_back(self, op, _faults=NO_FAULT):
        """A copy in the place of the file, as a person does who knows no snapshots."""
        model = self.model
        target = model.target(op["at"])
        if model.runs or target not in model.copies or self._layered():
            return "not now"
        self._sh(f"cp /root/bkr-{target} {self._files()[target]}")
        model.held[target] = bytearray(model.copies[target])

    def _snapshot(self, op, _faults=NO_FAULT):
        model = self.model
        name = model.new_name("s")
        _, wrong = self._ask(
            self.host, "virt.snapshot", model.name, name=name, disk_only=op["disk_only"]
        )
        if wrong:
            return f"refused: {wrong}"
        model.snapshots[name] = {target: bytes(held) for target, held in model.held.items()}

    def _revert(self, _op, _faults=NO_FAULT):
        model = self.model
        there = self._sh(f"virsh -q snapshot-list --name {model.name}").split()
        if not there:
            return "none"
        name = max(there)
        _, wrong = self._ask(self.host, "virt.revert_snapshot", model.name, name)
        if wrong:
            self._as_it_is()
            return f"refused: {wrong}"
        self._as_it_is()
        for target, held in model.snapshots[name].items():
            if target in model.held and bytes(model.held[target]) != held:
                raise Broken(f"disk: the revert to {name} made something else of {target}")

    def _delete_snapshot(self, _op, _faults=NO_FAULT):
        model = self.model
        there = self._sh(f"virsh -q snapshot-list --name {model.name}").split()
        if not there:
            return "none"
        _, wrong = self._ask(self.host, "virt.delete_snapshots", model.name, max(there))
        return f"refused: {wrong}" if wrong else None

    def _rename(self, _op, _faults=NO_FAULT):
        model = self.model
        if model.runs:
            return "not now"
        new = f"{world.guest_name()}{model.new_name('n')}"
        _, wrong = self._ask(self.host, "virt.rename", model.name, new)
        if wrong:
            return f"refused: {wrong}"
        model.name = new
        model.copies.clear()

    def _crash_qemu(self, _op, _faults=NO_FAULT):
        if not self.model.runs:
            return "is off"
        self._crash("qemu")

    def _crash(self, what):
        self.world.kill(what, self.model.name, self.model.host)
        if what == "qemu":
            gone = f"virsh domstate {self.model.name} | grep -q 'shut off'"
            self.world.lab.wait(lambda: self.host.shell(gone)[0] == 0, "the guest is off")
        self._as_it_is()

    def _crash_libvirtd(self, _op, _faults=NO_FAULT):
        self._crash("libvirtd")

    def _crash_host(self, _op, _faults=NO_FAULT):
        self.world.reboot(self.model.host)
        self._as_it_is()

    def _crash_target(self, _op, _faults=NO_FAULT):
        if self.world.target.name in self.world.hypervisors:
            return "is a hypervisor"
        self.world.reboot(self.world.target.name)

    def _crash_guest(self, _op, _faults=NO_FAULT):
        """What runs in it falls and begins anew, in the same QEMU."""
        if not self.model.runs:
            return "is off"
        self._sh(f"virsh -q reset {self.model.name}")

    def _prune(self, op, _faults=NO_FAULT):
        folder = FOLDERS[op["to"]]
        for _ in range(2):  # the second finds nothing to do
            self._target("virt.backup_prune", folder, {"last": op["last"]})
        self._listed(op["to"])
        good = [one for one in self._list(op["to"]) if not one["problem"]]
        if self.model.kept.get(op["to"]) and not good:
            raise Broken("prune: no good backup is left")

    def _verify(self, op, _faults=NO_FAULT):
        for one in self._target("virt.backup_verify", FOLDERS[op["to"]])["backups"]:
            if one["problem"] or one["error"]:
                raise Broken(f"verify: {one}")

    def _restore(self, op, _faults=NO_FAULT):
        """By our own verb: beside it, or in its place."""
        model, to = self.model, op["to"]
        good = [one["backup_id"] for one in self._list(to) if not one["problem"]]
        if not good:
            return "none"
        ident = good[int(op["at"] * len(good))]
        if op["itself"]:
            return self._restore_itself(to, ident)
        new = f"{world.guest_name()}{model.new_name('r')}"
        uuid = self._sh(f"virsh domuuid {model.name}").strip()
        good, said = self._run(
            "virt.backup_restore", uuid, to=to, backup=ident, new=new, host=model.host
        )
        if not good:
            raise Broken(f"restore: {said}")
        script = f"for one in {IMAGES}/{new}_vd*.qcow2; do "
        script += "qemu-img convert -O raw $one /dev/shm/bkr; sha256sum < /dev/shm/bkr; done"
        found = [line.split()[0] for line in self._sh(script).splitlines()]
        self._call("virt.purge", new)
        if found != list(model.kept[to][ident].values()):
            raise Broken(f"restore: {new} is not what {ident} has to be")

    def _restore_itself(self, to, ident):
        model = self.model
        if self._layered():
            return "not now"
        uuid = self._sh(f"virsh domuuid {model.name}").strip()
        self._call("virt.purge", model.name)
        called = self._called(to, ident)
        good, said = self._run("virt.backup_restore", called, to=to, backup=ident, host=model.host)
        if not good:
            raise Broken(f"restore: {said}")
        model.name = called
        if uuid != self._sh(f"virsh domuuid {model.name}").strip():
            raise Broken("restore: it has another UUID")
        model.copies.clear()
        model.snapshots.clear()
        model.runs = False
        model.held = self._truth()
        # its disks are called by their targets now
        model.disks = {target: len(held) for target, held in model.held.items()}
        if model.digests() != model.kept[to][ident]:
            raise Broken(f"restore: {model.name} is not what {ident} has to be")
        return "itself"

    # backups

    def _target(self, function, *args, **kwargs):
        answer, wrong = self._ask(self.world.target, function, *args, **kwargs)
        if wrong:
            raise Broken(f"refused: {function}: {wrong}")
        return answer

    def _list(self, to):
        return self._target("virt.backup_list", FOLDERS[to])

    def _called(self, to, ident):
        return next(one["guest"] for one in self._list(to) if one["backup_id"] == ident)

    def _listed(self, to, held=None):
        """Notes what is new at a target, which holds what the disks held; the new ones."""
        there = {one["backup_id"]: one for one in self._list(to)}
        known = self.model.kept.setdefault(to, {})
        for ident in set(known) - set(there):
            del known[ident]  # pruned
        new = [ident for ident in there if ident not in known]
        for ident in new:
            known[ident] = held or self.model.digests()
        return [there[ident] for ident in new]

    def _backup(self, op, faults=NO_FAULT):
        broken = faults or any(one["verb"] != "write" for one in op.get("meanwhile", ()))
        then = self.model.digests()
        how = self._by_runner(op, faults) if op["via"] == "runner" else self._by_parts(op)
        if broken:
            self._as_it_is()
        new = self._listed(op["to"], then)
        if how is None and len(new) != 1:
            raise Broken(f"backup: it is done, and there are {len(new)} new ones")
        if how and not broken:
            raise Broken(f"backup: {how}")
        wrong = [one for one in new if one["problem"]]
        if wrong:
            raise Broken(f"backup: {wrong[0]}")
        if how:
            return f"failed: {how}"
        kinds = {disk: "+" if on != "full" else "w" for disk, on in new[0]["disks"].items()}
        return "".join(kinds[disk] for disk in sorted(kinds))

    def _by_runner(self, op, faults):
        """None, or why there is no backup."""
        model = self.model
        threads = [self.world.later(one, model.name, model.host) for one in faults]
        try:
            good, said = self._run(
                "virt.backup", model.name, to=op["to"], full=op.get("whole", False)
            )
        except Ended as exc:
            good, said = False, str(exc)
        for one in threads:
            one.join()
        for one in faults:
            if one["kind"] in ("minion", "target_minion", "target"):
                self.world.lab.wait_for_minion(*self.world.machines)
        if any(one["kind"] == "runner" for one in faults):
            # nobody ends it: what is shown is shown for two minutes, and what is off stays off
            self.world.lab.wait(lambda: not self.world.traces(), "it ends by itself", 200, 2)
        return None if good else said

    def _by_parts(self, op):
        model, folder = self.model, FOLDERS[op["to"]]
        look = self._call("virt.backup_look", model.name)
        plan = self._target(
            "virt.backup_plan", folder, model.host, look, full=op.get("whole", False)
        )
        kept = []
        for name, other in FOLDERS.items():
            if name != op["to"]:
                kept += self._target("virt.backup_plan", other, model.host, look)["needed"]
        ident, made, why = plan["backup_id"], None, None
        reader = self._target("virt.backup_reader")["authority"]
        asked = model.name, ident, plan["disks"], reader
        served, why = self._ask(self.host, "virt.backup_begin", *asked)
        if why is None:
            for one in op.get("meanwhile", ()):
                self._meanwhile(one)
            made, why = self._ask(
                self.world.target, "virt.backup_pull", folder, model.name, ident, model.host, served
            )
        needed = [*kept, *made["checkpoints"]] if made else []
        ended, wrong = self._ask(
            self.host, "virt.backup_end", model.name, ident, made is not None, needed
        )
        if wrong:
            raise Broken(f"end: {wrong}")
        if ended["leftovers"]:
            self.said["left"] += 1
        return why

    def _meanwhile(self, op):
        if op["verb"] == "write":
            if self.model.runs:
                self._write(op)
        elif op["verb"] == "stop":
            if self.model.runs:
                self._stop(op)
        elif op["verb"] == "start":
            _, wrong = self._ask(self.host, "virt.start", self.model.name)
            if wrong is None and not self.model.runs:
                raise Broken("start: a guest was started while its disks were read")
        elif op["verb"] != "qemu" or self.model.runs:
            self.world.kill(op["verb"], self.model.name, self.model.host)

    # the end

    def _end(self):
        """Another backup goes well at each target that was used; then all that are good are what
        they have to be, and nothing of any is left."""
        for to in self.targets:
            how = self._backup({"verb": "backup", "via": "parts", "to": to, "meanwhile": []})
            self.say(f"  the end: {to}: {how}")
        self._as_recorded()
        # the process that kept them served may be at its very end; one that is forgotten ends in
        # two minutes, and no earlier
        end = time.monotonic() + 60
        while left := self.world.traces():
            if time.monotonic() > end:
                raise Broken(f"left: {left}")
            time.sleep(1)
        find = f"find {' '.join(FOLDERS.values())} -name '.new-*' -o -name '.gone-*'"
        hidden = self.world.target.shell(find)[1]
        if hidden.strip():
            raise Broken(f"left: {hidden}")
        last = [max(one) for one in self.model.kept.values()]
        names = self._sh(f"virsh -q checkpoint-list {self.model.name} --name").split()
        if len(names) > len(self.targets):
            raise Broken(f"left: checkpoints {names}, the last backups are {last}")
        self._same("at the end")

    def _as_recorded(self):
        """Restored by qemu-img alone, each is bit for bit what the disks held."""
        for to in self.targets:
            folder = FOLDERS[to]
            good = [one["backup_id"] for one in self._list(to) if not one["problem"]]
            missing = sorted(set(self.model.kept[to]) - set(good))
            if missing:
                raise Broken(f"good: at {to} these are not: {missing}")
            self.said["compared"] += len(good)
            script = world.restoring(to)
            script += f"set -e; for one in {' '.join(good)}; do cd {folder}/*/$one; "
            script += "for disk in *.qcow2; do raw $disk /dev/shm/bkr; "
            script += "echo $one/$disk $(sha256sum < /dev/shm/bkr); done; done"
            code, said = self.world.target.shell(script)
            if code:
                raise Broken(f"qemu-img: {said}")
            found = {}
            for line in said.splitlines():
                path, sha, *_ = line.split()
                ident, _, file = path.partition("/")
                found.setdefault(ident, {})[file.removesuffix(".qcow2")] = sha
            for ident in good:
                if found.get(ident) != self.model.kept[to][ident]:
                    other = [one for one, sha in self.model.kept[to][ident].items()
                             if found.get(ident, {}).get(one) != sha]  # fmt: skip
                    raise Broken(f"bits: {ident} of {to} is not what {other} held")
            for one in self._target("virt.backup_verify", folder)["backups"]:
                if one["problem"] or one["error"]:
                    raise Broken(f"verify: {one}")
