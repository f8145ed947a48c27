"""Generate a guest's key pair on its hypervisor. Keys are passed through pipes, never through
files."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.system import tools

if TYPE_CHECKING:
    from concurrent.futures import Future

DEFAULT_BITS = 2048  # what Salt's minions make for themselves
_FEWEST_BITS = 2048


def generate(bits: int = DEFAULT_BITS) -> tuple[str, str]:
    """A new RSA pair: (private PEM, public PEM).

    bits: at least 2048. Raises InvalidInput, and SeedFailed if openssl fails.
    """
    if not re.fullmatch("[0-9]{1,5}", str(bits)) or int(bits) < _FEWEST_BITS:
        raise errors.InvalidInput(
            f"a key of {bits!r} bits is too short: use {_FEWEST_BITS} or more"
        )
    private = tools.run(
        ["openssl", "genrsa", str(int(bits))], "generate the guest's key", errors.SeedFailed
    ).decode()
    return private, public_of(private)


def begin(bits: int = DEFAULT_BITS) -> Future[tuple[str, str]]:
    """Generate a pair in the background, and return its Future."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(generate, bits)
    pool.shutdown(wait=False)
    return future


def public_of(private: str) -> str:
    """The public PEM of a private key. Raises SeedFailed if it is no key."""
    argv, action = ["openssl", "rsa", "-passin", "pass:", "-pubout"], "read the guest's private key"
    out = tools.run(argv, action, errors.SeedFailed, stdin=private.encode())
    return out.decode()


def pair(private: str, public: str | None) -> tuple[str, str]:
    """The caller's pair, if both halves belong together.

    Raises InvalidInput otherwise.
    """
    try:
        derived = public_of(private)
    except errors.SeedFailed as exc:
        raise errors.InvalidInput("priv_key is not an RSA private key in PEM") from exc
    if public is not None and derived.split() != public.split():
        raise errors.InvalidInput("pub_key does not belong to priv_key")
    return private, derived
