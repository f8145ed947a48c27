"""Where images come from: what an address means, and who fetches it."""

import os
import re
from urllib.parse import urlsplit, urlunsplit

from saltvirt import errors

SALT, WEB, PATH = "salt", "web", "path"


def kind(source):
    """SALT, WEB or PATH for an image's address. Raises InvalidInput for anything else."""
    text = str(source)
    if any(ord(char) < 32 for char in text):
        raise errors.InvalidInput(f"image {text!r} has control characters in it")
    if text.startswith("/"):
        return PATH
    if text.startswith("salt://") and text != "salt://":
        return SALT
    if re.match(r"(https?|ftp)://[^/]+/.", text):
        return WEB
    raise errors.InvalidInput(
        f"image {text!r}: give salt://…, an absolute path on the host, http(s)://… or ftp://…"
    )


def shown(source):
    """The address without a password, for messages and records."""
    parts = urlsplit(source)
    if "@" not in parts.netloc:
        return source
    return urlunsplit(parts._replace(netloc="…@" + parts.netloc.rsplit("@", 1)[1]))


def name(source):
    """The file name in an address, without saltenv or query."""
    return os.path.basename(urlsplit(source).path) or urlsplit(source).netloc


def stem(source):
    """What a file in the cache is called after: letters, digits, dots and dashes."""
    base = re.sub(r"\.(qcow2|raw|img|vmdk|vdi|vhdx?|qcow)$", "", name(source), flags=re.IGNORECASE)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", base).strip(".-_")[:80] or "image"


class SaltFiles:
    """The master's files, by Salt's own functions.

    call: ``__salt__`` of the minion. saltenv: where an address names none.
    """

    def __init__(self, call, saltenv="base"):
        self._call = call
        self._saltenv = saltenv or "base"

    def version(self, source):
        """What the master's file server says of the file: {"hash_type", "hsum"}."""
        try:
            found = self._call["cp.hash_file"](source, saltenv=self._saltenv)
        except Exception as exc:
            raise errors.ImageError(f"cannot ask the master for {source}: {exc}") from exc
        if not found or not found.get("hsum"):
            raise errors.NotFound(
                f"image {source} does not exist on the master (saltenv {self._saltenv})"
            )
        return {"hash_type": found["hash_type"], "hsum": found["hsum"]}

    def fetch(self, source, target, _version, _progress):
        """Copies the file to ``target``, past the minion's own cache."""
        try:
            got = self._call["cp.get_file"](source, target, saltenv=self._saltenv)
        except Exception as exc:
            raise errors.ImageError(f"cannot copy {source} from the master: {exc}") from exc
        if not got:
            raise errors.ImageError(f"the master did not give {source}: see the master's log")
