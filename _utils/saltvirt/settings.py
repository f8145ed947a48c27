"""What the operator configured, by Salt's names.

``get`` is Salt's ``config.get`` (or any function of key and default): it looks in the
minion's configuration, grains, pillar and master configuration. Both forms are
understood: ``virt:images`` and the old dotted ``virt.images``.
"""

import re
from dataclasses import dataclass

from saltvirt import units
from saltvirt.errors import InvalidInput

# as in Salt's documents
IMAGES_FOLDER = "/srv/salt-images"
# the arguments that override the configured connection for one call
CONNECTION = ("connection", "username", "password")
# how long libvirt may be silent when it is asked for a connection
TIMEOUT_S = 20

_MISSING = object()
_UNFIT = re.compile("[\\x00-\\x1f\\x7f\\ud800-\\udfff]")


def option(get, key, default=None):
    """The value of ``virt:<key>``, else of the dotted ``virt.<key>``, else the default.

    key: without the leading ``virt``, e.g. ``images`` or ``connection:uri``.
    """
    for name in (f"virt:{key}", "virt." + key.replace(":", ".")):
        value = get(name, _MISSING)
        if value is not _MISSING and value is not None and value != "":
            return value
    return default


@dataclass(frozen=True)
class Connection:
    """Which libvirt to talk to, as whom. ``uri=None`` lets libvirt choose."""

    uri: str | None = None
    username: str | None = None
    password: str | None = None
    timeout_s: int = TIMEOUT_S

    def __repr__(self):
        return f"Connection(uri={self.uri!r}, username={self.username!r})"


def _text(value, what):
    """A text that libvirt takes, or None. It may be a password: it is not in the error."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # as YAML reads it
    if value is not None and (not isinstance(value, str) or _UNFIT.search(value)):
        raise InvalidInput(
            f"virt:connection:{what}, or the argument in its place, must be a text of one line, "
            f"not {type(value).__name__}"
        )
    return value


def connection(get, kwargs):
    """Takes ``connection``, ``username`` and ``password`` out of an adapter's ``**kwargs``.

    What is not given per call comes from ``virt:connection:uri``,
    ``virt:connection:auth:username`` and ``virt:connection:auth:password``. Salt's own
    dunder arguments (``__pub_…``) are dropped. Raises InvalidInput for any other
    argument that is left: a typo must not be dropped silently.
    """
    rest = {k: v for k, v in kwargs.items() if not k.startswith("__")}
    found = Connection(
        uri=_text(rest.pop("connection", None) or option(get, "connection:uri"), "uri"),
        username=_text(
            rest.pop("username", None) or option(get, "connection:auth:username"), "auth:username"
        ),
        password=_text(
            rest.pop("password", None) or option(get, "connection:auth:password"), "auth:password"
        ),
        timeout_s=units.parse_count(
            option(get, "connection:timeout", TIMEOUT_S), "virt:connection:timeout"
        ),
    )
    if rest:
        unknown = ", ".join(sorted(rest))
        raise InvalidInput(f"unknown argument: {unknown}")
    return found


def connection_of(get, given):
    """The Connection of a function that has the three arguments by name.

    given: its ``locals()``.
    """
    return connection(get, {word: given[word] for word in CONNECTION})
