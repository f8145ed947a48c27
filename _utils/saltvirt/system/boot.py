"""The current boot of the host; data written before it may have been lost in a power failure."""

_ID = "/proc/sys/kernel/random/boot_id"


def current() -> str:
    """Return the boot id of the kernel."""
    with open(_ID, encoding="utf-8") as file:
        return file.read().strip()
