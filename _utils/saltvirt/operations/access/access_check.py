"""Check whether the caller of a runner function is permitted to call it. See docs/how-to/rights.md.

A caller with access to the master itself (fleet.requester) is not restricted. For an authenticated
user, ``virt:rights`` applies: what it does not grant is denied, and a guest to which the user has
no rights is reported as missing. To give the same answer in both cases, all hosts are queried
regardless of the name, and the answer contains only what the user may see.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from saltvirt import errors, names, sanitize, settings, units
from saltvirt.fleet import requester
from saltvirt.fleet.client import Fleet
from saltvirt.operations.access import owners
from saltvirt.operations.cluster import find, inventory
from saltvirt.operations.journal import intent_log
from saltvirt.placement import facts
from saltvirt.placement.calls import RESIZE_DISK, ResizeRequest
from saltvirt.rights import confidential, grants, verbs
from saltvirt.rights.grants import GuestIdentity, ResourceAmount
from saltvirt.spec import deploy

TAG = "salt/virt/rights/denied"
# what an answer or an event says about other guests, and its replacement: the owner of an operation
# or of a disk, reasons that cannot be proven, hosts with capacity, members of a group
_REDACTIONS = (
    (re.compile(r"\bof [^;]*?(?=, process \d)", re.DOTALL), "of a guest"),
    (
        re.compile(r"\b(used by|needed by|is a disk of) .*", re.DOTALL),
        rf"\1 {confidential.ANONYMOUS}",
    ),
    (
        re.compile(r"\b(nobody uses it:|proven to be unused:) .*", re.DOTALL),
        rf"\1 {confidential.REASONS}",
    ),
    (re.compile(r"\b(virt:ha:reserve:) [^;]*"), rf"\1 {confidential.ROOM}"),
    (re.compile(r"\balready has \S+ of group\b"), f"already has {confidential.ANONYMOUS} of group"),
)
# the keys of virt.query about a host, beside its guests
_OF_HOST = ("freecpu", "freemem", "node_info")
# names of snapshots, targets and disks that users give: they become parts of file names
_TEXTS = {"snapshot", "names", "to", "disk"}
_TEXT = re.compile("[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
# arguments of virt.init that must be a number or a text for users, never a mapping; and flags
_NUMBERS = ("cpu", "mem", "image", "nic", "disk")
# the same of verbs with which a guest grows
_SIZES = ("cpu", "mem", "size")
_SWITCHES = ("seed", "install", "start", "enable_vnc", "enable_qcow")

Answer = dict[str, Any]
GuestFilter = Callable[[str, str], bool]

log = logging.getLogger(__name__)


def answer(
    function: Callable[..., Answer], bound: inspect.BoundArguments, injected: object
) -> Answer:
    """Return what a runner function returns, if the caller may call it.

    injected: the value that Salt has put into ``__user__``. Raises Denied, NotFound, and what the
    function raises.
    """
    user = limited_user(function, injected)
    if user is None:
        return function(*bound.args, **bound.kwargs)
    return _Limited(function.__globals__["__opts__"], user, function, bound).answer()


def limited_user(function: Callable[..., Answer], injected: object) -> str | None:
    """Return the user whose rights limit the call of a runner function, or None. injected: as for
    answer. Raises Denied."""
    opts = function.__globals__.get("__opts__") or {}
    if not grants.configured(opts):
        return None
    try:
        return requester.requesting_user(opts, injected)
    except errors.Denied as exc:
        with Fleet(opts) as fleet:
            _report_denial(fleet, "", function.__name__, "", exc)
        raise


def guest_filter(opts: dict[str, Any], user: str | None) -> GuestFilter | None:
    """Return a function of a guest's name and UUID: whether the user can see the guest. None for a
    user without limits. Raises Denied, BadAnswer."""
    user_rights = _limits(opts, user)
    if user_rights is None:
        return None
    return lambda name, uuid: user_rights.sees(_read_ownership(opts, name, uuid))


def may_still(opts: dict[str, Any], user: str, verb: str, name: str, uuid: str) -> bool:
    """Return whether a user who was permitted a verb for this guest still is: according to
    ``virt:rights`` as this process has read it, and to the guest's current owner. Raises
    InvalidInput, BadAnswer."""
    if not grants.configured(opts):
        return True
    rights = grants.read(opts)
    user_rights = rights.for_user(user, requester.groups(opts, rights.eauth, user))
    return user_rights.everywhere(verb) or user_rights.may(verb, _read_ownership(opts, name, uuid))


def may_ever(opts: dict[str, Any], user: str | None, verb: str) -> bool:
    """Return whether a guest can exist for which the user has this right. Raises Denied."""
    user_rights = _limits(opts, user)
    return user_rights is None or user_rights.may_at_all(verb)


def may_all(opts: dict[str, Any], user: str | None, verb: str) -> bool:
    """Return whether the user may call the verb for all guests. Raises Denied."""
    user_rights = _limits(opts, user)
    return user_rights is None or user_rights.everywhere(verb)


def permitted_verbs(opts: dict[str, Any], user: str | None) -> dict[str, frozenset[str] | None]:
    """Return the verbs that the user may call, at least for some guest, each with the arguments
    that the user may pass; None: all arguments. Raises Denied."""
    user_rights = _limits(opts, user)
    permitted: dict[str, frozenset[str] | None] = {}
    for verb, rule in verbs.RULES.items():
        if user_rights is None or user_rights.everywhere(verb):
            permitted[verb] = None
        elif rule.scope != verbs.CLOUD and user_rights.may_at_all(verb):
            permitted[verb] = rule.takes
    return permitted


def visible_to(
    opts: dict[str, Any],
    user: str | None,
    listing: Answer,
    hosts: list[facts.Host],
    unreachable: dict[str, str],
) -> Answer:
    """Return the part of a virt.query listing that the user may see. hosts, unreachable: as
    returned by inventory.gather. Raises Denied, BadAnswer."""
    user_rights = _limits(opts, user)
    if user_rights is None or user_rights.everywhere("query"):
        return listing
    return _narrow(user_rights, "query", listing, _cloud(opts, hosts, unreachable))


def is_making(opts: dict[str, Any], user: str | None, name: str) -> bool:
    """Return whether a guest of this name is being created for the user."""
    return user is not None and owners.maker(opts, name) == user


def _limits(opts: dict[str, Any], user: str | None) -> grants.UserRights | None:
    """Return the user's rights; None if the user is not restricted."""
    return None if user is None or not grants.configured(opts) else _user_rights(opts, user)


def _user_rights(opts: Mapping[str, Any], user: str) -> grants.UserRights:
    try:
        rights = grants.read(opts)
    except errors.InvalidInput as exc:
        raise errors.Denied(
            "access denied to all users: the master's virt:rights is invalid; salt-run "
            "virt.owners on the master shows the error"
        ) from exc
    return rights.for_user(user, requester.groups(opts, rights.eauth, user))


def _read_ownership(opts: dict[str, Any], name: str, uuid: str) -> GuestIdentity:
    """Return a guest's name with its recorded owner and labels. Raises BadAnswer."""
    record = owners.load(opts, uuid)
    return GuestIdentity(name, record.owner, record.labels)


def requesting_user(opts: Mapping[str, Any]) -> str | None:
    """Return the user who runs this; None if the user has access to the master, or if no rights are
    configured and the user is unknown."""
    try:
        return requester.requesting_user(opts)
    except errors.Denied:
        if grants.configured(opts):
            raise
        return None


def _report_denial(fleet: Fleet, user: str, verb: str, guest: str, error: errors.VirtError) -> None:
    fields = {"user": user, "verb": verb, "guest": guest, "message": error.text}
    fleet.fire_event(TAG, {word: sanitize.one_line(text) for word, text in fields.items()})


@dataclass(frozen=True)
class _Guest:
    """A guest on one of its hosts."""

    ownership: GuestIdentity
    facts: facts.Guest


@dataclass(frozen=True)
class _Cloud:
    """The answers of all hosts. hosts: host to its guests by name. last_seen: which of the
    unreachable hosts had a guest; see find.Locations."""

    hosts: dict[str, dict[str, _Guest]]
    unreachable: tuple[str, ...]
    last_seen: find.LastSeen

    def instances_of(self, name: str) -> list[GuestIdentity]:
        """Return the guest as recorded for each host that has it."""
        return [guests[name].ownership for guests in self.hosts.values() if name in guests]

    def located(self, name: str) -> tuple[str, _Guest]:
        """Return (host, guest) of a guest that exists."""
        return next((host, guests[name]) for host, guests in self.hosts.items() if name in guests)

    def uuids(self) -> list[str | None]:
        """Return the normalized UUIDs of all guests."""
        uuids = (guest.facts.uuid for guests in self.hosts.values() for guest in guests.values())
        return [owners.normalize_uuid(uuid) for uuid in uuids]

    def missing(self, name: str, visible: bool) -> errors.NotFound:
        """Return the error for a guest that no host reports, or that the user may not see. visible:
        the user could see it."""
        last = self.last_seen(name) if visible else None
        if last:
            return errors.NotFound(find.last_seen_text(name, last))
        text = f"no guest {name!r} on any hypervisor"
        if self.unreachable:
            text += f" that answered (not: {', '.join(self.unreachable)})"
        return errors.NotFound(text + find.quoting_hint(name))


class _Limited:
    """A call by a user with limited rights."""

    def __init__(
        self,
        opts: Mapping[str, Any],
        user: str,
        function: Callable[..., Answer],
        bound: inspect.BoundArguments,
    ) -> None:
        self.opts, self.user, self.verb = dict(opts), user, function.__name__
        self._function, self._bound = function, bound

    def answer(self) -> Answer:
        """Return the function's answer. Raises Denied and NotFound, and fires an event for them."""
        with Fleet(self.opts) as fleet, contextlib.ExitStack() as stack:
            try:
                self._rights = _user_rights(self.opts, self.user)
                call = self._authorized_call(fleet, stack)
            except errors.VirtError as exc:
                _report_denial(fleet, self.user, self.verb, self._subject(), exc)
                raise
            fleet.disconnect()
            with confidential.collect() as parts:
                try:
                    result: Answer = self._redact(call(), parts)
                    return result
                except errors.VirtError as exc:
                    raise type(exc)(redact(self._redact(exc.text, parts))) from exc
                except Exception as exc:  # its text may be about another user's guest
                    log.exception("virt.%s", self.verb)
                    raise errors.OperationFailed(
                        "internal error: the master's log has a traceback; please report it"
                    ) from exc

    def _redact(self, value: Any, parts: list[confidential.Redaction]) -> Any:
        """Return the answer without details of other users' guests; unchanged if the user may call
        the verb for all guests."""
        return value if self._rights.everywhere(self.verb) else confidential.redact(value, parts)

    def _subject(self) -> str:
        name = self._bound.arguments.get("name") or self._bound.arguments.get("host") or ""
        return name if isinstance(name, str) else units.short_repr(name)

    def _denied(self, detail: str = "") -> errors.Denied:
        return errors.Denied(f"{self.user} may not call virt.{self.verb}{detail}")

    def _authorized_call(self, fleet: Fleet, stack: contextlib.ExitStack) -> Callable[[], Answer]:
        """Return the call to make. Raises Denied, NotFound, InvalidInput, OperationFailed."""
        if not self._rights.may_at_all(self.verb):
            raise self._denied()
        self._refuse_connection()
        rule = verbs.RULES[self.verb]
        everywhere = self._rights.everywhere(self.verb)
        if everywhere and rule.scope != verbs.MAKING:
            return self._call
        if rule.scope == verbs.CLOUD:
            raise self._denied()
        if not everywhere:
            self._refuse_arguments(rule)
        if rule.scope == verbs.NONE:
            return self._call
        if rule.scope == verbs.MAKING:
            return self._creating_call(fleet, stack, everywhere)
        cloud = self._query_cloud(fleet)
        if rule.scope == verbs.LISTING:
            return lambda: _narrow(self._rights, self.verb, self._call(), cloud)
        if self._bound.arguments.get("name") is None:
            raise self._denied(" without the name of a guest")
        name = self._name("name", names.existing_guest)
        self._admit(cloud, name)
        if "new" in self._bound.arguments:
            self._admit_name(cloud, self._name("new", names.guest))
        if self.verb in verbs.GROWING:
            self._admit_growth(fleet, stack, cloud, name)
        return lambda: redact(self._call())

    def _call(self) -> Answer:
        return self._function(*self._bound.args, **self._bound.kwargs)

    def _refuse_connection(self) -> None:
        """Raise Denied for an argument that selects a host's libvirt: its address can name a
        program (``qemu+ext:///system?command=…``), which the host would run as root."""
        arguments = self._bound.arguments
        parts = [arguments, *(value for value in arguments.values() if isinstance(value, dict))]
        for word in settings.CONNECTION:
            if any(word in part for part in parts):
                raise self._denied(f" with {word}")

    def _refuse_arguments(self, rule: verbs.VerbRule) -> None:
        """Raise Denied for an argument that users may not give."""
        arguments, extra = self._bound.arguments, {}
        for parameter in self._bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD and parameter.name in arguments:
                extra = settings.user_kwargs(arguments[parameter.name])
                arguments = {
                    word: item for word, item in arguments.items() if word != parameter.name
                }
                self._bound.arguments[parameter.name] = extra
        for word in sorted({*arguments, *extra} - rule.takes):
            raise self._denied(f" with {sanitize.one_line(word)}")
        for word in sorted(_TEXTS & arguments.keys()):
            value = arguments[word]
            for item in value if isinstance(value, (list, tuple)) else [value]:
                if not _TEXT.fullmatch(str(item)):
                    raise self._denied(f" with {word}={units.short_repr(item)}")

    def _name(self, word: str, fits: Callable[[object], str]) -> str:
        """Return the validated name, and pass it to the function instead of the original
        argument."""
        name = self._bound.arguments[word] = fits(str(self._bound.arguments[word]))
        return name

    def _query_cloud(self, fleet: Fleet, guest: dict[str, Any] | None = None) -> _Cloud:
        """Query all hosts, regardless of the request."""
        self._hosts, unreachable = inventory.gather(fleet, guest=guest, patient=guest is not None)
        return _cloud(self.opts, self._hosts, unreachable)

    def _admit(self, cloud: _Cloud, name: str) -> None:
        """Raise NotFound if the user may not see the guest on each host that has it, Denied if the
        user may not call the verb for it."""
        instances = cloud.instances_of(name)
        if not instances:
            raise cloud.missing(name, self._could_see(name))
        if not all(map(self._rights.sees, instances)):
            raise cloud.missing(name, False)
        if not all(self._rights.may(self.verb, instance) for instance in instances):
            raise self._denied(f" of {name}")

    def _could_see(self, name: str) -> bool:
        """Return whether the user could see each guest of this name that the master has a record
        of, and one without a record if there is none."""
        try:
            records = owners.load_named(self.opts, name)
        except errors.BadAnswer:
            return False
        identities = [GuestIdentity(name, record.owner, record.labels) for record in records]
        return all(map(self._rights.sees, identities or [GuestIdentity(name)]))

    def _admit_name(self, cloud: _Cloud, name: str) -> None:
        """Raise Denied if the user may not use the name, AlreadyExists if another user's guest has
        it."""
        if not self._rights.may_name(self.verb, name):
            raise self._denied(f" for a guest {name}")
        if not all(map(self._rights.sees, cloud.instances_of(name))):
            raise errors.AlreadyExists(f"the name {name} is in use")

    def _creating_call(
        self, fleet: Fleet, stack: contextlib.ExitStack, everywhere: bool
    ) -> Callable[[], Answer]:
        """Return the call that creates guests within the quota. The user becomes their owner."""
        init_args = self._init_arguments()
        if not everywhere:
            self._refuse_guests(init_args)
        with owners.one_at_a_time(self.opts):
            under_way = owners.being_made(self.opts)
            cloud = self._query_cloud(fleet, self._sizing_arguments(init_args))
            if not everywhere:
                for name in init_args["name"]:
                    self._admit_name(cloud, name)
            amount = self._largest_amount(cloud)
            count = len(init_args["name"])
            self._check_quota(
                cloud, under_way, _sum([amount] * count), self.user, self._rights.quota
            )
            pending_guests = {
                name: owners.PendingGuest(self.user, amount.vcpus or 0, amount.memory_kib or 0,
                                    amount.disk_bytes or 0)
                for name in init_args["name"]
            }  # fmt: skip
            if any(name in under_way for name in pending_guests):
                raise errors.AlreadyExists("one of the names is in use: a guest is being created")
            stack.enter_context(owners.making(self.opts, pending_guests))
        return lambda: self._create(fleet, cloud, list(pending_guests))

    def _admit_growth(
        self, fleet: Fleet, stack: contextlib.ExitStack, cloud: _Cloud, name: str
    ) -> None:
        """Raise Denied if the guest would exceed the quota of its owner. A guest without an owner
        is counted for the user who enlarges it."""
        given = self._bound.arguments
        sizes = {word: given[word] for word in _SIZES if given.get(word) is not None}
        for word, value in sizes.items():
            if not isinstance(value, (str, int, float)):
                raise self._denied(f" with {word}={units.short_repr(value)}")
        _, guest = cloud.located(name)
        iso = given.get("iso")
        if iso is not None and not self._rights.may_use(self.verb, guest.ownership, str(iso)):
            raise self._denied(f" with iso={units.short_repr(sanitize.address(str(iso)))}")
        owner = guest.ownership.owner
        quota = self._rights.quota if owner is None else _user_rights(self.opts, owner).quota
        if quota.unlimited or not sizes:
            return
        stack.enter_context(owners.one_at_a_time(self.opts))
        under_way, cloud = owners.being_made(self.opts), self._query_cloud(fleet)
        self._admit(cloud, name)
        host, guest = cloud.located(name)
        growth = self._growth(fleet, host, guest.facts)
        if owner is None:
            growth = _sum([growth, replace(_amount(guest.facts), guests=0)])
        self._check_quota(cloud, under_way, growth, owner or self.user, quota)

    def _growth(self, fleet: Fleet, host: str, guest: facts.Guest) -> ResourceAmount:
        """Return what the guest would take in addition. Raises InvalidInput."""
        given, now = self._bound.arguments, _amount(guest)
        disk_bytes = 0
        if self.verb == "attach" and given.get("size") is not None:
            disk_bytes = units.parse_bytes(given["size"])
        elif given.get("size") is not None:
            request = ResizeRequest(
                vm_=guest.name, disk=str(given["disk"]), size=given["size"], test=True
            )
            resized = RESIZE_DISK.ask(fleet, host, request, long=False)
            disk_bytes = max(0, resized.after - resized.before)
        vcpus = units.parse_count(given["cpu"], "cpu") if given.get("cpu") else 0
        memory_kib = units.parse_kib(given["mem"], argument="mem") if given.get("mem") else 0
        more_vcpus = max(0, vcpus - (now.vcpus or 0))
        return ResourceAmount(0, more_vcpus, max(0, memory_kib - (now.memory_kib or 0)), disk_bytes)

    def _init_arguments(self) -> dict[str, Any]:
        """Return the arguments of virt.init by name, with its defaults."""
        self._bound.apply_defaults()
        arguments = dict(self._bound.arguments)
        arguments.update(settings.user_kwargs(arguments.pop("kwargs", {})))
        if arguments.get("size") is not None:
            arguments["disks"] = deploy.system_disk(arguments)
        several = names.guest_list(arguments["name"])
        arguments["name"] = [names.guest(str(arguments["name"]))] if several is None else several
        return arguments

    def _refuse_guests(self, init_args: dict[str, Any]) -> None:
        """Raise Denied for guests that the user may not create."""
        for keys, kinds in (_NUMBERS, (str, int, float)), (_SWITCHES, (bool,)):
            for word in keys:
                if not isinstance(init_args[word], kinds):
                    raise self._denied(f" with {word}={units.short_repr(init_args[word])}")
        image, profiles = str(init_args["image"]), [str(init_args["nic"]), str(init_args["disk"])]
        for name in init_args["name"]:
            if not self._rights.may_name(self.verb, name):
                raise self._denied(f" for a guest {name}")
            if not self._rights.may_make(name, image, profiles):
                made_of = f"{sanitize.address(image)} with disk={profiles[1]} nic={profiles[0]}"
                raise self._denied(f" for a guest {name} of {made_of}")

    def _sizing_arguments(self, init_args: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments from which hosts compute the size of one guest."""
        keys = ("cpu", "mem", "image", "hypervisor", "nic", "disk", "disks", "enable_qcow", "seed")
        return {
            "name": init_args["name"][0],
            **{word: init_args[word] for word in keys if word in init_args},
        }

    def _largest_amount(self, cloud: _Cloud) -> ResourceAmount:
        """Return the largest amount that one guest takes on any host. Raises Refused if no host can
        compute it."""
        amounts = [
            (needs.vcpus, max(needs.memory_kib, needs.max_memory_kib),
             needs.disk_bytes + sum(needs.pools.values()) + sum(d.size_bytes for d in needs.disks))
            for needs in (host.needs for host in self._hosts) if needs and not needs.problem
        ]  # fmt: skip
        if self._rights.quota.unlimited:
            return ResourceAmount()
        if not amounts:
            raise errors.Refused("no host can compute what the guest would take")
        return ResourceAmount(1, *(max(column) for column in zip(*amounts, strict=True)))

    def _check_quota(
        self,
        cloud: _Cloud,
        under_way: dict[str, owners.PendingGuest],
        amount: ResourceAmount,
        user: str,
        quota: ResourceAmount,
    ) -> None:
        """Raise Denied if the quota of a user would be exceeded."""
        if quota.unlimited:
            return
        holder = user if _is_same(user, self.user) else "its owner"
        if cloud.unreachable:
            raise errors.Refused(
                f"the guests of {holder} are unknown while hosts do not answer: "
                f"{', '.join(cloud.unreachable)}"
            )
        owned = [
            (name, entry.facts)
            for guests in cloud.hosts.values()
            for name, entry in guests.items()
            if _is_same(entry.ownership.owner, user)
        ]
        current = {guest.uuid: _amount(guest) for _, guest in owned}
        coming = [
            entry.amount()
            for name, entry in {**self._unrecorded(cloud), **under_way}.items()
            if _is_same(entry.owner, user) and name not in dict(owned)
        ]
        reason = grants.quota_excess(quota, _sum([*current.values(), *coming]), amount)
        if reason:
            reason = f": {reason}" if holder == user else ""
            raise errors.Denied(f"the quota of {holder} would be exceeded{reason}")

    def _unrecorded(self, cloud: _Cloud) -> dict[str, owners.PendingGuest]:
        """Return name to PendingGuest of the guests that were created for users and whose owners
        are not recorded. All hosts have answered, so records without such a guest are removed."""
        pending_guests = owners.unrecorded(self.opts)
        for name in [*pending_guests]:
            instances = cloud.instances_of(name)
            if not instances or any(instance.owner is not None for instance in instances):
                owners.forget_unrecorded(self.opts, name)
                del pending_guests[name]
        return pending_guests

    def _create(self, fleet: Fleet, before: _Cloud, guest_names: list[str]) -> Answer:
        """Call the function. New guests under names that were free become the user's."""
        try:
            result = self._call()
        except errors.VirtError:
            self._count_unsure(before, guest_names)
            raise
        created = {
            name: str(result[name].get("host")) for name in guest_names
            if not before.instances_of(name) and (result.get(name) or {}).get("result") is True
        }  # fmt: skip
        self._count_unsure(before, [name for name in guest_names if name not in created])
        after = self._query_cloud(fleet) if created else before
        for name, host in created.items():
            guest = after.hosts.get(host, {}).get(name)
            is_new = guest and self._is_new(guest.facts.uuid, before, after)
            if not (guest and is_new and self._record_owner(guest.facts.uuid, name)):
                log.warning("%s on %s has no owner: its new UUID is unknown", name, host)
                self._count_unrecorded(name)
                comment = f"{result[name].get('comment')}; the master could not record you as "
                comment += (
                    f"its owner: its operator can run salt-run virt.set_owner {name} {self.user}"
                )
                result[name] = {**result[name], "comment": comment}
        redacted: Answer = redact(result)
        return redacted

    def _count_unsure(self, before: _Cloud, failed: list[str]) -> None:
        """Count failed guests that may nevertheless exist: their hosts were asked to create them,
        and the result is unknown."""
        for name in failed:
            if not before.instances_of(name) and intent_log.load(self.opts, name):
                self._count_unrecorded(name)

    def _count_unrecorded(self, name: str) -> None:
        """Count the guest in the quota until the operator records its owner."""
        try:
            owners.store_unrecorded(self.opts, name)
        except OSError:
            log.exception("cannot record that %s belongs to %s", name, self.user)

    def _record_owner(self, uuid: str, name: str) -> bool:
        """Record the user as the guest's owner. Return whether that succeeded."""
        try:
            owners.set_owner(self.opts, uuid, name, self.user)
        except (OSError, errors.VirtError):
            log.exception("cannot record the owner of %s", name)
            return False
        return True

    def _is_new(self, uuid: str, before: _Cloud, after: _Cloud) -> bool:
        """Return whether the UUID can belong to a guest that was just created. The UUID is the
        host's claim: with the UUID of another guest, the user would become the owner of that guest,
        too."""
        normalized = owners.normalize_uuid(uuid)
        if (
            normalized is None
            or normalized in before.uuids()
            or after.uuids().count(normalized) != 1
        ):
            return False
        return owners.load(self.opts, uuid) == owners.Owner("")


def _cloud(opts: dict[str, Any], hosts: list[facts.Host], unreachable: dict[str, str]) -> _Cloud:
    """Return the guests of all hosts with their recorded owners and labels. Raises BadAnswer."""
    by_host = {
        host.name: {
            guest.name: _Guest(_read_ownership(opts, guest.name, guest.uuid), guest)
            for guest in host.guests
        }
        for host in hosts
    }
    return _Cloud(by_host, tuple(sorted(unreachable)), find.last_seen_lookup(opts, unreachable))


def _narrow(user_rights: grants.UserRights, verb: str, listing: Answer, cloud: _Cloud) -> Answer:
    """Return the part of a listing with the guests that the user may see. On a host that does not
    answer, these are unknown."""
    visible = {
        host: {name for name, guest in guests.items() if user_rights.may(verb, guest.ownership)}
        for host, guests in cloud.hosts.items()
    }
    return {
        host: host_entry
        if host == "retcode"
        else {"error": f"{host} does not respond"}
        if host in cloud.unreachable
        else _visible_part(host_entry, visible.get(host, set()))
        for host, host_entry in listing.items()
    }


def _is_same(owner: str | None, user: str) -> bool:
    """Return whether the owner is this user, also in another spelling of the name."""
    return owner is not None and grants.normalize_user(owner) == grants.normalize_user(user)


def _amount(guest: facts.Guest) -> ResourceAmount:
    """Return what a guest takes, at the maximum size that it may grow to."""
    memory_kib = max(guest.memory_kib, guest.max_memory_kib)
    disk_bytes = sum(disk.size_bytes for disk in guest.disks)
    return ResourceAmount(1, guest.vcpus, memory_kib, disk_bytes)


def _sum(amounts: list[ResourceAmount]) -> ResourceAmount:
    return ResourceAmount(*(
        sum(getattr(amount, attribute) or 0 for amount in amounts)
        for attribute in ("guests", "vcpus", "memory_kib", "disk_bytes")
    ))  # fmt: skip


def _visible_part(host_entry: Any, visible: set[str]) -> Any:
    """Return the part of one host's entry in virt.list or virt.query with the guests of these
    names."""
    if not isinstance(host_entry, dict) or "error" in host_entry:
        return {"error": "invalid answer"}
    if "vm_info" in host_entry:
        guests = {name: guest for name, guest in host_entry["vm_info"].items() if name in visible}
        return {
            **{word: host_entry[word] for word in _OF_HOST if word in host_entry},
            "vm_info": guests,
        }
    states = {
        state: [name for name in guest_names if name in visible]
        for state, guest_names in host_entry.items()
        if isinstance(guest_names, list)
    }
    return {state: guest_names for state, guest_names in states.items() if guest_names}


def redact(value: Any) -> Any:
    """Return an answer, or an event, without what its texts say about other guests."""
    if isinstance(value, dict):
        return {word: redact(item) for word, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [redact(item) for item in value]
    if isinstance(value, str):
        for pattern, instead in _REDACTIONS:
            value = pattern.sub(instead, value)
    return value
