"""The one tree of exceptions.

Each is a CommandExecutionError, so Salt prints it as one clean line and keeps its
class across ``__salt__``. A message says what is wrong, where, and what to do.
"""

from __future__ import annotations

from saltvirt import sanitize

try:
    from salt.exceptions import CommandExecutionError as _Base
    from salt.exceptions import SaltException as SaltException  # noqa: PLC0414 - a name of ours, too
except ImportError:  # the library is also used, and tested, without Salt
    _Base = SaltException = Exception  # type: ignore[assignment,misc]


class VirtError(_Base):
    """Anything that Salt Virt refuses or fails at.

    Its message is one line, whatever an image, a guest or a tool had to say in it.
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(sanitize.one_line(message))

    @property
    def text(self) -> str:
        """The one line for the user."""
        return str(self)


class InvalidInput(VirtError):
    """What the caller asked for is wrong; nothing was changed."""


class BadAnswer(InvalidInput):
    """What a host told, or what is in a file of ours, is not what this version reads."""


class NotFound(VirtError):
    """The named guest, host, pool, network, volume or profile does not exist."""


class Denied(VirtError):
    """Whoever asks has no right to it; see docs/rights.md."""


class AlreadyExists(VirtError):
    """The name or UUID is taken."""


class Unsupported(VirtError):
    """This libvirt, QEMU or host cannot do it."""


class ConnectionFailed(VirtError):
    """No libvirt could be reached or it refused us."""


class BindingMissing(ConnectionFailed):
    """The libvirt binding cannot be imported by this Python."""


class Refused(VirtError):
    """The host does not admit the guest: capacity, or something it lacks.

    Between host and master an error travels as text. This one begins with a fixed
    word, so that the runner knows that another host may be tried.
    """

    PREFIX = "refused: "

    def __init__(self, message: object) -> None:
        super().__init__(self.PREFIX + self.without_prefix(message))

    @classmethod
    def without_prefix(cls, message: object) -> str:
        """A text without the fixed words at its beginning."""
        return str(message).removeprefix(cls.PREFIX)

    @property
    def reason(self) -> str:
        """What it says, without the fixed words."""
        return self.without_prefix(self)


class NoRoom(Refused):
    """By placement's account the host has no room, or no longer: the master looked at the same
    facts a moment ago, so somebody else was faster, and any other host may still have it."""

    PREFIX = "refused: no room: "

    @classmethod
    def without_prefix(cls, message: object) -> str:
        return str(message).removeprefix(cls.PREFIX).removeprefix(Refused.PREFIX)


class OperationFailed(VirtError):
    """libvirt, QEMU or a tool said no while we worked."""


class Incomplete(OperationFailed):
    """The creation of the guest has not ended, or was interrupted."""


class ImageError(VirtError):
    """The image is missing, damaged, no disk image, or not allowed."""


class NoKey(VirtError):
    """The key of a backup is not on this machine, or is another."""


class SeedFailed(VirtError):
    """The guest's disk could not be prepared."""


class KeyRefused(VirtError):
    """The master does not accept this minion key."""


class PkiError(VirtError):
    """The certificate authority or a certificate is not usable."""


class MigrationFailed(VirtError):
    """The guest was not migrated; the message says where it runs."""


class TargetRefused(Refused, MigrationFailed):
    """This target does not take the guest, nothing of it was sent there: another one may."""


class StaleLibrary(VirtError):
    """This process holds an older saltvirt than the disk."""
