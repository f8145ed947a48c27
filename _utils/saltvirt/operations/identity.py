"""A guest under another name: renamed, or copied."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Iterator
from typing import Any

from saltvirt import errors, names
from saltvirt.answers.made import Made, Renamed
from saltvirt.fleet import authorization, secret, target
from saltvirt.fleet.answer import DOWN
from saltvirt.fleet.client import Fleet
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars
from saltvirt.operations import (
    alone,
    away,
    find,
    hints,
    inventory,
    keepers,
    lock,
    purge,
    reserved,
    unique,
)
from saltvirt.operations.begun import Begun
from saltvirt.operations.init import deliver, handed_in, naming_what_stays
from saltvirt.operations.operation import Checked, Reasons, Result
from saltvirt.operations.report import Report
from saltvirt.placement import policy
from saltvirt.revert import Revert
from saltvirt.spec import values


class _NewName(abc.ABC):
    """What a rename and a copy have in common.

    name, new: of the guest, and the new one. options: more arguments of the host's function. sure:
    no host that does not answer has a guest of the new name.
    """

    function: str

    def __init__(
        self,
        fleet: Fleet,
        report: Report,
        name: str,
        new: str,
        options: dict[str, Any] | None = None,
        sure: bool = False,
    ) -> None:
        self.fleet, self.report = fleet, report
        self.name, self.new = str(name), str(new)
        self.options, self.sure = dict(options or {}), sure
        if self.options.get("seed") is not None:
            self.options["seed"] = values.boolean(self.options["seed"], "seed")

    def check(self) -> Checked:
        """What its host would make or rename."""
        reasons = Reasons()
        with reasons:
            self._free(reasons)
            host, _, plan = self._look(reasons)
            return self._planned(host, plan)
        return reasons.checked(self.name)

    @abc.abstractmethod
    def _planned(self, host: str, plan: dict[str, Any]) -> Checked:
        """In words. plan: what the host says that it would do."""

    @contextlib.contextmanager
    def _both(self) -> Iterator[None]:
        """Holds the locks of both names; a failure is an event, too."""
        opts = self.fleet.opts
        self._other_name()
        with lock.guest(opts, self.name, self.function), lock.guest(opts, self.new, self.function):
            try:
                for name in (self.name, self.new):
                    keepers.refuse(opts, name)
                yield
            except errors.VirtError as exc:
                self.report.failed(exc)
                raise

    def _other_name(self) -> None:
        if names.guest(self.name) == names.guest(self.new):
            raise errors.InvalidInput(f"{self.name} is its name already")

    def _free(self, reasons: Reasons) -> None:
        """What a run finds out when it takes the locks."""
        with reasons:
            names.guest(self.name)
        with reasons:
            names.guest(self.new)
        self._other_name()
        for name in (self.name, self.new):
            with reasons:
                lock.refuse_taken(self.fleet.opts, name)
        for name in (self.name, self.new):
            with reasons:
                keepers.refuse(self.fleet.opts, name)

    def _look(self, reasons: Reasons) -> tuple[str, dict[str, Any], dict[str, Any]]:
        """(host, the arguments for it without ``test``, what it would do)."""
        fleet, new = self.fleet, self.new
        with reasons:
            target.refuse_host(fleet.opts, new)
        reasons.hold()
        locations = find.locations(fleet)
        with reasons:
            locations.host_of(self.name)
        with reasons:
            if new in locations.guests:
                places = ", ".join(sorted(locations.guests[new]))
                raise errors.AlreadyExists(f"{new} exists already, on {places}")
            # who is renamed has its old name no more
            others = {one: at for one, at in locations.guests.items() if one not in self._ends}
            unique.refuse_case(new, others)
            unique.check(fleet, new, locations.unreachable, sure=self.sure)
            unique.refuse_key(KeyStore(fleet.opts), new)
        with reasons:
            host = locations.host_of(self.name)
            with reasons:  # its disks are written to, or read as if nobody wrote to them
                alone.check(fleet, locations, self.name, host)
            asked = self._asked(host)
            hidden = self._hidden(asked)
            with reasons:
                plan = fleet.one(host, self.function, {**secret.without(asked), "test": True})
            with reasons:
                secret.refuse_claimed(fleet.opts, host, hidden)
            with reasons:
                if self._hands_in(hidden):
                    authorization.refuse_others(fleet.opts, host, new)
        reasons.hold()
        return host, asked, plan

    @property
    def _ends(self) -> set[str]:
        """The names that no guest has any more once it is done."""
        return set()

    def _asked(self, _host: str) -> dict[str, Any]:
        """The arguments of the host's function."""
        return {"vm_": self.name, "name": self.new, **self.options}

    def _hidden(self, _asked: dict[str, Any]) -> dict[str, Any]:
        """What of the arguments may be secret: the host asks for it."""
        return {}

    def _hands_in(self, hidden: dict[str, Any] | None) -> bool:
        """Whether the host hands in a key, or asks for what is secret."""
        return bool(hidden) or self.options.get("seed") is not False

    def _keys_come(
        self, host: str, undo: Revert, **handed: Any
    ) -> contextlib.AbstractContextManager[None]:
        """As authorization.handing_in, unless the guest gets no key and is told nothing."""
        if not self._hands_in(handed.get("secret")):
            return contextlib.nullcontext()
        return authorization.handing_in(self.fleet, host, self.new, undo, **handed)


class Rename(_NewName):
    """Gives a guest that is off another name. Whatever fails, it has its old name and key again."""

    function = "virt.rename"

    @property
    def _ends(self) -> set[str]:
        return {self.name}

    def _planned(self, host: str, plan: dict[str, Any]) -> Checked:
        comment = f"{self.name} on {host} would be renamed to {self.new}"
        changes = {"name": {"old": self.name, "new": self.new}, **plan}
        return Checked(self.name, comment, changes, {"host": host})

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, AlreadyExists, KeyRefused, OperationFailed."""
        fleet, name, new = self.fleet, self.name, self.new
        with self._both():
            host, *_ = self._look(Reasons(first=True))
            undo = Revert()
            with naming_what_stays(undo), undo:
                pillar = Pillars(fleet.opts).of(name, KeyStore(fleet.opts).public)
                with self._keys_come(host, undo, pillar=pillar):
                    made = self._renamed(host, (name, new), self.options)
                    undo.push(f"rename {new} back to {name}", self._back, host)
                    handed_in(fleet, self.report, host, new, made)
                unique.resolve(fleet, self.report, new, host, sure=self.sure)
                deliver(fleet, self.report, host, new)
                left = fleet.one(host, "virt.vm_state")
                if name in left or new not in left:
                    raise errors.OperationFailed(f"{host}: libvirt has no {new} in place of {name}")
                undo.success()
            hints.heard(fleet.opts, host, left)
            for gone in (name, new):
                away.forget(fleet.opts, gone)
                hints.forget(fleet.opts, gone)
            if made.pub_key:
                self._forget(host)
        changes = {"name": {"old": name, "new": new}, "disks": [*made.disks]}
        comment = f"{name} on {host} was renamed to {new}"
        for path, why in sorted(made.kept.items()):
            comment += f"; {path} keeps its name: {why}"
        comment = "; ".join((comment, *made.warnings))
        return Result(new, comment, changes, {"host": host})

    def _renamed(self, host: str, pair: tuple[str, str], options: dict[str, Any]) -> Renamed:
        asked = {"vm_": pair[0], "name": pair[1], **options, "approve_key": True}
        watch = (f"salt/virt/{pair[1]}/rename/", self.report.host_says)
        made = self.fleet.one(host, "virt.rename", asked, long=True, watch=watch)
        return Renamed.from_answer(made, host)

    def _back(self, host: str) -> None:
        """The old name again; a minion in it gets new keys once more."""
        fleet, name = self.fleet, self.name
        pillar = Pillars(fleet.opts).of(name, KeyStore(fleet.opts).public)
        with authorization.Authorizations(fleet.opts).held(host, name, pillar, replace=True):
            made = self._renamed(host, (self.new, name), {})
            handed_in(fleet, self.report, host, name, made)

    def _forget(self, host: str) -> None:
        """The key of the old name goes, when it is this guest's."""
        keys, name = KeyStore(self.fleet.opts), self.name
        why = keys.stays(name, host) if keys.status(name) else None
        if why:
            self.report.step("warning", f"{name}: its key stays: {why}")
            return
        keys.delete(name)
        Pillars(self.fleet.opts).remove(name)


class Clone(_NewName):
    """Copies a guest that is off, on its host. start: whether to start the copy. keeper: whose room
    the copy leaves free, but by overcommit."""

    function = "virt.clone"

    def __init__(
        self,
        *args: Any,
        start: bool = False,
        keeper: keepers.Keeper | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.start, self.keeper = start, None if self.options.get("overcommit") else keeper

    def _spares(self, host: str) -> str:
        """What the copy would break and is only said. Raises Refused."""
        runs = bool(self.start or self.options.get("autostart"))
        return reserved.on_its_host(self.keeper, self.fleet, host, self.name, self.new, runs)

    def _planned(self, host: str, plan: dict[str, Any]) -> Checked:
        comment = f"{self.name} would be copied to {self.new} on {host}"
        comment = "; ".join(filter(None, (comment, self._spares(host))))
        return Checked(self.new, comment, {"created": plan}, {"host": host})

    def run(self) -> Result:
        """Raises NotFound, InvalidInput, AlreadyExists, KeyRefused, OperationFailed, Refused."""
        fleet, report, new = self.fleet, self.report, self.new
        with self._both():
            host, asked, _ = self._look(Reasons(first=True))
            warning = self._spares(host)
            asked = {**asked, "start": False, "approve_key": True}
            asked, hidden = secret.split(asked)
            undo = Revert()
            begin = fleet.opts, new, "virt.clone", undo
            with naming_what_stays(undo), Begun(*begin) as begun, undo:
                begun.on(host)
                with self._keys_come(host, undo, secret=hidden):
                    made = self._made(host, asked)
                    undo.push(f"purge {new} on {host}", purge.on_host, fleet, host, new)
                    handed_in(fleet, report, host, new, made)
                unique.resolve(fleet, report, new, host, sure=self.sure)
                begun.starting()
                by = policy.of_master(fleet.opts) if self.start else None
                state = deliver(fleet, report, host, new, start_by=by)
                undo.success()
        comment = f"{new}, a copy of {self.name}, is {state} on {host}"
        comment = "; ".join(filter(None, (comment, warning, *made.warnings)))
        return Result(new, comment, {"created": made.to_answer()}, {"host": host, "state": state})

    def _asked(self, host: str) -> dict[str, Any]:
        terms = inventory.terms(self.fleet, host, policy.of_master(self.fleet.opts))
        return {**super()._asked(host), "placement": terms.to_answer()}

    def _hidden(self, asked: dict[str, Any]) -> dict[str, Any]:
        _, hidden = secret.split(asked)
        return dict(hidden)

    def _made(self, host: str, asked: dict[str, Any]) -> Made:
        """What the host answered. Raises, with what to do, when it gave no answer."""
        new, watch = self.new, (f"salt/virt/{self.new}/clone/", self.report.host_says)
        made = self.fleet.gather([host], "virt.clone", asked, long=True, watch=watch)[host]
        if made.kind == DOWN:
            raise errors.OperationFailed(f"{host}: {made.error}; nothing was made")
        try:
            return Made.from_answer(made.get(), host)
        except errors.ConnectionFailed as exc:
            raise errors.ConnectionFailed(
                f"{exc.text}; it may be making {new}, or have made it: salt-run virt.repair "
                f"name={new} shows what is left of it"
            ) from exc
