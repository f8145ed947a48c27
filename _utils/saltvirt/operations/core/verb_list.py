"""The verbs of the runner, in groups, with one line for each."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from saltvirt import errors, units
from saltvirt.operations.core.result import Answer

# the order is that in which an operator meets the verbs
GROUPS = {
    "See what exists": (
        "list", "query", "vm_info", "locate", "addresses", "log", "top", "host_info", "images",
        "pools", "volumes", "networks", "versions", "owners", "metrics", "help",
    ),
    "Create and remove guests": (
        "init", "explain", "next_host", "capacity", "deployed", "deployments", "clone", "rename",
        "purge", "authorize", "seed_eject", "started",
    ),
    "Start and stop guests": (
        "start", "shutdown", "reboot", "force_off", "reset", "pause", "resume", "autostart",
    ),
    "Change guests": ("update", "resize", "attach", "detach", "set_owner", "label"),
    "Snapshots": ("snapshots", "snapshot", "revert", "delete_snapshots"),
    "Reach guests": (
        "console", "exec", "put", "get", "display", "screenshot", "ticket", "watch",
    ),
    "Move guests and maintain hosts": (
        "migrate", "migratable", "migrate_abort", "migrate_recover", "migrate_unfinished",
        "maintenance", "evacuate", "restore", "rebalance", "repair", "volume_delete",
    ),
    "Backups": (
        "backup", "backup_due", "backups", "backup_ls", "backup_get", "backup_restore",
        "backup_instant", "backup_confirm", "backup_undo", "backup_prune", "backup_verify",
    ),
    "High availability": (
        "ha_status", "ha_setup", "ha_enable", "ha_disable", "ha_ignore", "ha_move", "ha_rule",
        "ha_simulate", "ha_arm", "ha_disarm", "ha_confirm_off", "fence",
    ),
    "Certificates": ("certs", "revoke", "rotate_ca"),
}  # fmt: skip


def listing(
    functions: Mapping[str, Callable[..., Any]],
    permitted: Mapping[str, frozenset[str] | None],
) -> Answer:
    """Return a table for each group. functions: the runner's ``__salt__``. permitted: the verbs
    that the user may call, with the arguments that the user may pass (None: all); a group without
    such a verb is left out."""
    data: Answer = {}
    for group, verbs in GROUPS.items():
        callable_verbs = [v for v in verbs if f"virt.{v}" in functions and v in permitted]
        rows = [[_usage(verb, functions), _summary(functions, verb)] for verb in callable_verbs]
        table = [[group, "manual: salt-run virt.help VERB"], *rows]
        limits = {verb: permitted[verb] for verb in callable_verbs}
        arguments = {verb: sorted(limit) for verb, limit in limits.items() if limit is not None}
        if rows:
            data[group] = {"table": table, "verbs": callable_verbs, "arguments": arguments}
    return data


def manual(functions: Mapping[str, Callable[..., Any]], verb: object) -> Answer:
    """Return the manual of a verb. Raises InvalidInput for an unknown verb."""
    name = str(verb).removeprefix("virt.")
    verbs = [each for group in GROUPS.values() for each in group if f"virt.{each}" in functions]
    if name not in verbs:
        near = difflib.get_close_matches(name, verbs, n=1)
        hint = f"did you mean {near[0]!r}?" if near else "salt-run virt.help lists the verbs"
        raise errors.InvalidInput(f"no verb {units.short_repr(name)}; {hint}")
    text = inspect.cleandoc(functions[f"virt.{name}"].__doc__ or "")
    return {f"virt.{name}": text.replace("``", "").replace(".. code-block:: bash\n\n", "")}


def _summary(functions: Mapping[str, Callable[..., Any]], verb: str) -> str:
    """Return the first sentence of the verb's manual."""
    paragraph = inspect.cleandoc(functions[f"virt.{verb}"].__doc__ or "").partition("\n\n")[0]
    text = " ".join(paragraph.replace("``", "").split())
    return re.split(r"[.:;] ", text)[0].rstrip(".")


def _usage(verb: str, functions: Mapping[str, Callable[..., Any]]) -> str:
    """Return the verb with the arguments that it requires."""
    function = functions[f"virt.{verb}"]
    parameters = inspect.signature(getattr(function, "func", function)).parameters.values()
    required = [parameter.name.upper() for parameter in parameters
                if parameter.default is parameter.empty
                and parameter.kind is parameter.POSITIONAL_OR_KEYWORD]  # fmt: skip
    return " ".join([verb, *required])
