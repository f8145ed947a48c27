"""Send the secret arguments of an operation only to the host that needs them.

All minions can read the arguments of a job, because Salt encrypts publications with one key for
all. Secret arguments therefore stay on the master, with the permission to submit the guest's key,
until the host requests them through the ext_pillar ``virtkey``. The answer is encrypted for that
request.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, TypeVar

from saltvirt import errors, settings
from saltvirt.fleet import target
from saltvirt.placement.calls import CopyRequest, CreateRequest

Request = TypeVar("Request", CreateRequest, CopyRequest)

# arguments of virt.init and virt.clone that may be secret, and the secret key of a dictionary: they
# are in no job, return, event or log
ARGUMENTS = frozenset({"autosign_grains", "config", "priv_key", "user_data"})
_KEYS = {"graphics": "password"}


def split(request: Request) -> tuple[Request, dict[str, Any]]:
    """Split a request into the one of the job, which tells the host to request the secret
    arguments, and the secret arguments."""
    options = request.options
    secrets = {word: options[word] for word in sorted(ARGUMENTS) if options.get(word)}
    for word, key in _KEYS.items():
        value = options.get(word)
        if isinstance(value, dict) and value.get(key):
            secrets[word] = value
    plain = {word: value for word, value in options.items() if word not in secrets}
    return replace(request, options=plain, from_master=bool(secrets)), secrets


def without(request: Request) -> Request:
    """Return the request without secret arguments, for a host that does not need them."""
    return replace(split(request)[0], from_master=False)


def cleaned(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments without the secret ones, and dictionaries without their secret key."""
    public = {word: value for word, value in arguments.items() if word not in ARGUMENTS}
    for word, key in _KEYS.items():
        if isinstance(public.get(word), dict):
            public[word] = {k: v for k, v in public[word].items() if k != key}
    return public


def refuse_claimed(opts: dict[str, Any], host: str, arguments: Iterable[str]) -> None:
    """Raise InvalidInput if the host would get secrets, but only claims to be a hypervisor.

    arguments: what it would get. opts: the master's configuration.
    """
    trusted = settings.boolean(settings.of_master(opts), "pki:trust_grains", False)
    if arguments and not trusted and not target.by_name(opts, host):
        raise errors.InvalidInput(
            f"{', '.join(sorted(arguments))} may be secret, and {host} only claims to be a "
            f"hypervisor (virt:hosts is {target.expression(opts)}): set virt:hosts in the master's "
            "configuration to ids, a list or a nodegroup"
        )
