"""The hierarchy of exceptions.

Each is a CommandExecutionError, so Salt prints it as one line and preserves its class across
``__salt__``. A message says what is wrong, where, and what to do.
"""

from __future__ import annotations

from saltvirt import sanitize

try:
    from salt.exceptions import CommandExecutionError as _Base
    from salt.exceptions import SaltException as SaltException  # noqa: PLC0414 - a name of ours, too
except ImportError:  # the library can be used, and tested, without Salt
    _Base = SaltException = Exception  # type: ignore[assignment,misc]


class VirtError(_Base):
    """Base of all errors of Salt Virt.

    Its message is always one line, even if it contains text of an image, a guest or a tool.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(sanitize.one_line(message))

    @property
    def text(self) -> str:
        """The line for the user."""
        return str(self)


class InvalidInput(VirtError):
    """The request is invalid; nothing was changed."""


class NotConfigured(InvalidInput):
    """The feature that the request needs is not configured."""


class BadAnswer(InvalidInput):
    """The answer of a host, or a file of Salt Virt, cannot be read by this version."""


class NotFound(VirtError):
    """The named guest, host, pool, network, volume or profile does not exist."""


class Denied(VirtError):
    """The user does not have the right; see docs/how-to/rights.md."""


class AlreadyExists(VirtError):
    """The name or UUID is in use."""


class Unsupported(VirtError):
    """This libvirt, QEMU or host does not support it."""


class ConnectionFailed(VirtError):
    """libvirt cannot be reached, or refused the connection."""


class BindingMissing(ConnectionFailed):
    """This Python cannot import the libvirt binding."""


class Refused(VirtError):
    """The host does not admit the guest, for lack of capacity or of a resource.

    Errors are transferred between host and master as text. This one begins with a fixed word, so
    that the runner knows that it may try another host.
    """

    PREFIX = "refused: "

    def __init__(self, message: object) -> None:
        super().__init__(self.PREFIX + self.without_prefix(message))

    @classmethod
    def without_prefix(cls, message: object) -> str:
        """The text without the prefix."""
        return str(message).removeprefix(cls.PREFIX)

    @property
    def reason(self) -> str:
        """The message without the prefix."""
        return self.without_prefix(self)


class NoRoom(Refused):
    """The host does not have enough free capacity, or not any more: the master saw the same data a
    moment ago, so another operation was faster, and any other host may still have capacity."""

    PREFIX = "refused: no room: "

    @classmethod
    def without_prefix(cls, message: object) -> str:
        return str(message).removeprefix(cls.PREFIX).removeprefix(Refused.PREFIX)


class OperationFailed(VirtError):
    """libvirt, QEMU or a tool reported an error."""


class Incomplete(OperationFailed):
    """The creation of the guest has not ended, or was interrupted."""


class ImageError(VirtError):
    """The image is missing, damaged, not a disk image, or not permitted."""


class NoKey(VirtError):
    """The encryption key of a backup is missing on this machine, or is another one."""


class SeedFailed(VirtError):
    """The guest's disk could not be seeded."""


class KeyRefused(VirtError):
    """The master does not accept the minion key."""


class PkiError(VirtError):
    """The CA or a certificate cannot be used."""


class MigrationFailed(VirtError):
    """The guest was not migrated; the message says where it runs."""


class TargetRefused(Refused, MigrationFailed):
    """The target refuses the guest before anything was transferred; another target may accept
    it."""


class StaleLibrary(VirtError):
    """This process has imported an older saltvirt than the files on disk."""
