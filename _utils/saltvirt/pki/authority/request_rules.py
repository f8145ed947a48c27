"""Parse what a minion may request, and refuse everything else.

All of it comes from the minion, which may shorten the lifetime of its certificate or set its
organization, but extend nothing.
"""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from saltvirt.errors import InvalidInput
from saltvirt.pki.authority import policy
from saltvirt.pki.authority.store import USES

if TYPE_CHECKING:
    from collections.abc import Mapping

_ARGUMENTS = {"seal", "csr", "dry", "subjects", "hosts", *policy.PARTS, "expiration_days"}
_LEGACY = "ext_pillar_virt."
_USE_NAMES = {use.name for use in USES}
MAX_CSR = 8192


@dataclass(frozen=True)
class SigningRequest:
    """seal: public key to encrypt private keys for. csr: PEM by use. dry: change nothing. subjects:
    return the subjects of all hypervisors' client certificates. hosts: return the names of the
    hypervisors."""

    seal: bytes | None = None
    csr: dict[str, str] = field(default_factory=dict)
    dry: bool = False
    subjects: bool = False
    hosts: bool = False
    days: int | None = None
    subject: dict[str, str] = field(default_factory=dict)


def parse(
    _command: object, arguments: Mapping[str, Any], pillar: Mapping[Any, Any]
) -> SigningRequest:
    """The SigningRequest in an ext_pillar call.

    _command: Salt's positional argument (``_``), ignored. arguments: of Salt Virt. pillar: contains
    ``ext_pillar_virt.*`` of Salt's own state. Raises InvalidInput for unknown arguments and for
    values of the wrong type.
    """
    given = {
        key.removeprefix(_LEGACY): value
        for key, value in pillar.items()
        if isinstance(key, str) and key.startswith(_LEGACY)
    }
    given = {k: v for k, v in given.items() if k in policy.PARTS or k == "expiration_days"}
    given.update(arguments)
    unknown = sorted(str(key) for key in set(given) - _ARGUMENTS)
    if unknown:
        raise InvalidInput(f"unknown argument of the libvirt pillar: {', '.join(unknown)[:100]}")
    parts = {k: policy.word(k, given[k]) for k in policy.PARTS if given.get(k)}
    return SigningRequest(
        seal=_seal(given.get("seal")),
        csr=_csr(given.get("csr") or {}),
        dry=given.get("dry") is True,
        subjects=given.get("subjects") is True,
        hosts=given.get("hosts") is True,
        days=_days(given.get("expiration_days")),
        subject=parts,
    )


def _days(value: Any) -> int | None:
    if value is None:
        return None
    # ASCII digits only, and few of them: int() accepts other digits and thousands of them
    if not re.fullmatch("[0-9]{1,5}", str(value)) or not 1 <= int(value) <= 36500:
        raise InvalidInput("expiration_days must be a whole number of days from 1 to 36500")
    return int(value)


def _seal(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError) as exc:
        raise InvalidInput("seal is not valid base64") from exc


def _csr(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not set(value) <= _USE_NAMES:
        raise InvalidInput(f"csr must map {', '.join(sorted(_USE_NAMES))} to signing requests")
    for pem in value.values():
        if not isinstance(pem, str) or len(pem) > MAX_CSR:
            raise InvalidInput("a signing request must be PEM text")
    return value
