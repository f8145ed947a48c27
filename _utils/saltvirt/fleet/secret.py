"""What of an operation's arguments may be secret: it goes to the one host that needs it.

All minions can read a job's arguments: Salt gives them one key for what it publishes. So these
stay on the master, with the permission to hand in the guest's key, until the host asks for them by
the ext_pillar ``virtkey``; the answer is sealed to that one request.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from saltvirt import errors, settings
from saltvirt.fleet import target

# what tells the host to ask
FROM_MASTER = "from_master"
_ALWAYS = ("config", "user_data", "priv_key", "autosign_grains")


def split(arguments: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """(arguments of the job, what is secret of them)."""
    secrets = {word: arguments[word] for word in _ALWAYS if arguments.get(word)}
    graphics = arguments.get("graphics")
    if isinstance(graphics, dict) and graphics.get("password"):
        secrets["graphics"] = graphics
    plain = {word: value for word, value in arguments.items() if word not in secrets}
    return ({**plain, FROM_MASTER: True} if secrets else plain), secrets


def without(arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are no secret, for a question that is not about them."""
    hidden = split(arguments)[1]
    return {word: value for word, value in arguments.items() if word not in hidden}


def refuse_claimed(opts: dict[str, Any], host: str, arguments: Iterable[str]) -> None:
    """Raises InvalidInput when the host gets secrets, and is one by its own word alone.

    arguments: what it would get. opts: the master's configuration.
    """
    trusted = settings.boolean(settings.of_master(opts), "pki:trust_grains", False)
    if arguments and not trusted and not target.by_name(opts, host):
        raise errors.InvalidInput(
            f"{', '.join(sorted(arguments))}: may be secret, and {host} is a hypervisor by its own "
            f"word alone (virt:hosts is {target.expression(opts)}): set virt:hosts in the "
            "master's configuration to ids, a list or a nodegroup"
        )
