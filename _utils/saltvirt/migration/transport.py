"""The transport between two hosts for a migration."""

from __future__ import annotations

import re
from dataclasses import dataclass

from saltvirt.errors import InvalidInput

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])"
_URI = re.compile(
    rf"qemu(?:\+(?P<scheme>tls|ssh|tcp))?://(?:(?P<user>[A-Za-z0-9_.-]+)@)?(?P<host>{_HOST})"
    r"(?::(?P<port>[0-9]{1,5}))?/system(?:\?(?P<query>[A-Za-z0-9_=&%./-]*))?"
)


@dataclass(frozen=True)
class Transport:
    """uri: of the target's libvirt. native_tls: whether QEMU itself encrypts memory and disks."""

    uri: str
    scheme: str
    host: str
    port: int | None = None
    tunnelled: bool = False

    @property
    def native_tls(self) -> bool:
        return self.scheme != "tcp" and not self.tunnelled

    @property
    def description(self) -> str:
        """A description of the transport for the operator."""
        if self.scheme == "tcp":
            return "TCP without encryption"
        return f"{self.scheme.upper()}, tunnelled" if self.tunnelled else self.scheme.upper()


def parse(target: object, tunnelled: bool = False) -> Transport:
    """Return the Transport to a target.

    target: a host's name (``hv2``: TLS) or a libvirt URI ``qemu+tls://``, ``qemu+ssh://`` or
    ``qemu+tcp://HOST/system``. Only the last is plaintext, and only if given explicitly. Raises
    InvalidInput.
    """
    text = str(target or "")
    if re.fullmatch(_HOST, text):
        return Transport(f"qemu+tls://{text}/system", "tls", text.strip("[]"), None, tunnelled)
    match = _URI.fullmatch(text)
    if match is None:
        raise InvalidInput(
            f"target {text!r} is neither a host's name nor one of qemu+tls://HOST/system, "
            "qemu+ssh://HOST/system, qemu+tcp://HOST/system (plaintext)"
        )
    uri = text.replace("qemu://", "qemu+tls://")
    port = int(match["port"]) if match["port"] else None
    return Transport(uri, match["scheme"] or "tls", match["host"].strip("[]"), port, tunnelled)
