"""Errors of a file system that is full or read-only."""

from __future__ import annotations

import errno

_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def describe(error: Exception) -> str | None:
    """Return in words that a file system is full or read-only, if that is the error."""
    if isinstance(error, OSError) and error.errno in _ERRORS:
        return f"cannot write {error.filename or 'its files'}: {error.strerror}"
    return None
