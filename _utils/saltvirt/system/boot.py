"""This run of the host's kernel: what was written before it may have been lost with the power."""

_ID = "/proc/sys/kernel/random/boot_id"


def current() -> str:
    """What tells this run from any other."""
    with open(_ID, encoding="utf-8") as file:
        return file.read().strip()
