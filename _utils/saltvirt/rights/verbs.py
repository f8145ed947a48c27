"""The scope of each verb of the runner, and the arguments that limited users may pass.

A verb that is not listed here is denied to every limited user.
"""

from __future__ import annotations

from dataclasses import dataclass

# the scope of a verb: one guest by name; a list of all guests; new guests; no guest; all others
GUEST, LISTING, MAKING, NONE, CLOUD = "guest", "listing", "making", "none", "cloud"


@dataclass(frozen=True)
class VerbRule:
    """The rule for a verb.

    scope: what the verb acts on. takes: the arguments that a limited user may pass; the others
    require ``everything``.
    """

    scope: str
    takes: frozenset[str] = frozenset()


def _rule(scope: str, takes: str = "") -> VerbRule:
    return VerbRule(scope, frozenset(takes.split()))


_GUEST, _CLOUD = _rule(GUEST, "name test"), _rule(CLOUD)

RULES = {
    "list": _rule(LISTING, "host hyper quiet"), "query": _rule(LISTING, "host quiet"),
    "locate": _rule(GUEST, "name"), "vm_info": _rule(GUEST, "name quiet"),
    "addresses": _rule(GUEST, "name"), "log": _rule(GUEST, "name limit since before user verb"),
    "start": _GUEST, "shutdown": _rule(GUEST, "name test timeout"),
    "force_off": _GUEST, "pause": _GUEST,
    "resume": _GUEST, "reset": _GUEST, "reboot": _rule(GUEST, "name timeout test"),
    "update": _rule(GUEST, "name cpu mem autostart test"),
    "resize": _rule(GUEST, "name disk size test"),
    "attach": _rule(GUEST, "name disk size iso test"), "detach": _rule(GUEST, "name iso test"),
    "autostart": _rule(GUEST, "name enabled test"), "snapshots": _rule(GUEST, "name"),
    "snapshot": _rule(GUEST, "name snapshot test disk_only quiesce"),
    "revert": _rule(GUEST, "name snapshot cleanup test"),
    "delete_snapshots": _rule(GUEST, "name names all children test"),
    "backup": _rule(GUEST, "name to full test"),
    "display": _rule(GUEST, "name"), "screenshot": _rule(GUEST, "name width screen"),
    "ticket": _rule(GUEST, "name kind digest screen force"),
    "watch": _rule(NONE, "digest"), "help": _rule(NONE, "verb"),
    "deployments": _rule(NONE, "name"),
    "console": _rule(GUEST, "name force escape"),
    "exec": _rule(GUEST, "name cmd shell env timeout base64"),
    "purge": _rule(GUEST, "name delete_key test force"), "rename": _rule(GUEST, "name new test"),
    "init": _rule(
        MAKING,
        "name cpu mem image host seed nic install start disk size os enable_vnc enable_qcow "
        "at_once test",
    ),
    **dict.fromkeys(
        (
            "host_info", "versions", "next_host", "explain", "capacity", "clone", "deployed",
            "authorize", "seed_eject", "migrate", "migratable", "migrate_abort", "migrate_recover",
            "migrate_unfinished", "evacuate", "restore", "rebalance", "repair", "started",
            "backups", "backup_due", "backup_restore", "backup_confirm", "backup_undo",
            "backup_prune", "backup_verify", "backup_ls", "backup_get", "backup_instant",
            "put", "get", "metrics", "certs", "revoke", "rotate_ca",
            "ha_enable", "ha_disable", "ha_ignore", "ha_move", "ha_setup", "ha_rule",
            "ha_arm", "ha_disarm", "ha_confirm_off", "ha_status", "ha_simulate", "fence",
            "set_owner", "owners", "label",
            "networks", "pools", "volumes", "volume_delete", "images", "maintenance", "top",
        ),
        _CLOUD,
    ),
}  # fmt: skip

# verbs with which a guest takes more of a quota
GROWING = frozenset({"update", "resize", "attach"})

# a user with the right to one of these verbs for a guest can see the guest
SEEING = frozenset(verb for verb, rule in RULES.items() if rule.scope in (GUEST, LISTING))

_READ = frozenset({
    "list", "query", "locate", "vm_info", "addresses", "log", "snapshots", "watch", "help",
    "deployments",
})  # fmt: skip
_USE = _READ | {
    "start", "shutdown", "force_off", "pause", "resume", "reboot", "reset", "snapshot", "revert",
    "delete_snapshots", "backup", "display", "screenshot", "ticket", "console",
}  # fmt: skip
# the names of sets of verbs in virt:rights
SETS = {
    "read": _READ, "use": _USE,
    "manage": _USE | {"init", "purge", "rename", "exec", "update", "resize", "autostart",
               "attach", "detach"},
}  # fmt: skip
