"""Files of the master that root, or whoever runs the master, alone reads."""

import os
import secrets


def write(path, text):
    """Gives the file this content, all at once; makes its folder."""
    folder = os.path.dirname(path)
    os.makedirs(folder, mode=0o700, exist_ok=True)
    part = os.path.join(folder, f".{secrets.token_hex(8)}")
    with open(part, "w", encoding="utf-8", opener=_opener) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(part, path)


def _opener(path, flags):
    return os.open(path, flags | os.O_EXCL, 0o600)
