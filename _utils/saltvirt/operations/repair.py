"""What interrupted operations have left behind: found first, mended on request."""

import functools
from dataclasses import dataclass

from saltvirt import errors
from saltvirt.fleet.authorise import Authorisations
from saltvirt.fleet.keys import KeyStore
from saltvirt.fleet.pillars import Pillars


@dataclass(frozen=True)
class Finding:
    """what: the leftover, in words. mend: callable that mends it, None: a person must decide.

    how: what mending does, or what the person has to look at.
    """

    about: str
    what: str
    how: str
    mend: object = None


def look(fleet):
    """(list of Finding, host to why it was not heard). Changes nothing.

    Keys without a guest are only looked for when every host was heard: the guest may be on
    the one that was not.
    """
    guests, unheard, found = {}, {}, []
    for answer in fleet.ask(fleet.hosts(), "virt.leftovers"):
        if not answer.ok:
            unheard[answer.host] = answer.error
            continue
        found += list(_of_host(fleet, answer.host, answer.data))
        for name, state in answer.data["guests"].items():
            guests.setdefault(name, {})[answer.host] = state
    moving = {finding.about for finding in found}
    found += list(_twice(guests, moving))
    if not unheard:
        found += list(_keys(fleet, guests))
    found += list(_permissions(fleet))
    found += list(_pillars(fleet))
    return sorted(found, key=lambda f: (f.about, f.what)), unheard


def mend(findings, report):
    """Mends what can be mended. Returns (mended, left): finding's name to words."""
    mended, left = {}, {}
    for finding in findings:
        if finding.mend is None:
            left[finding.about] = f"{finding.what}: {finding.how}"
            continue
        try:
            finding.mend()
            mended[finding.about] = finding.how
            report.step("mended", f"{finding.about}: {finding.how}")
        except errors.VirtError as exc:
            left[finding.about] = f"{finding.what}: {exc.text}"
    return mended, left


def _of_host(fleet, host, data):
    for name in data["unfinished"]:
        yield Finding(
            name,
            f"half made on {host} by an init that died",
            f"removed from {host}",
            functools.partial(fleet.one, host, "virt.purge", {"vm_": name}, long=True),
        )
    for name, about in data["migrations"].items():
        if about.get("at_work"):
            continue
        yield Finding(
            name,
            f"its migration from {host} was broken off",
            "both hosts asked and the migration ended",
            functools.partial(fleet.one, host, "virt.migrate_recover", {"vm_": name}, long=True),
        )


def _twice(guests, moving):
    for name, hosts in guests.items():
        if len(hosts) > 1 and name not in moving:
            places = ", ".join(f"{host} ({state})" for host, state in sorted(hosts.items()))
            yield Finding(
                name,
                f"is on more than one host: {places}",
                "decide which one is right, and purge the other with salt HOST virt.purge",
            )


def _keys(fleet, guests):
    keys = KeyStore(fleet.opts)
    for name in keys.ours():
        if name not in guests:
            yield Finding(
                name,
                "the master trusts its key, and no host has such a guest",
                "key deleted",
                functools.partial(keys.delete, name),
            )


def _pillars(fleet):
    pillars = Pillars(fleet.opts)
    for name in pillars.orphans(KeyStore(fleet.opts).accepted):
        yield Finding(
            name,
            "the master keeps a pillar for it, and its key is gone",
            "pillar removed",
            functools.partial(pillars.remove, name),
        )


def _permissions(fleet):
    permissions = Authorisations(fleet.opts)
    for host, name in permissions.expired():
        yield Finding(
            name,
            f"a permission for {host} to hand in its key has expired",
            "permission removed",
            functools.partial(permissions.revoke, host, name),
        )
