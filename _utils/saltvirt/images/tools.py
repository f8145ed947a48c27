"""Runs qemu-img, guestfish and their like."""

import os
import shutil
import subprocess

from saltvirt import errors

_LAST_WORDS = 300
# for what reads or writes little; who copies disks says how long that may take
TIMEOUT_S = 600


def command(argv):
    """The argv as it is run: the tool dies with us where util-linux can see to that.

    A minion that is killed in the middle must not leave a qemu-img behind that goes on
    writing to a file which the next attempt makes anew.
    """
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL", "--", *argv] if setpriv else list(argv)


def environment():
    """Our environment with messages in English, which we read.

    A tool such as systemd-nspawn would tell systemd, by the socket that the minion's service was
    given, that it is stopping; and systemd would believe that the minion is.
    """
    found = {**os.environ, "LC_ALL": "C"}
    found.pop("NOTIFY_SOCKET", None)
    return found


def last_words(text):
    """The end of what a tool said, on one line."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " / ".join(lines[-3:])[-_LAST_WORDS:] or "it said nothing"


def missing(name):
    """The error for a tool that is not installed."""
    return errors.Unsupported(f"{name} is not installed on this host")


def run(
    argv, what, error=errors.OperationFailed, *,
    stdin=None, timeout_s=TIMEOUT_S, good=(0,), user=None, name=None,
):  # fmt: skip
    """What the tool printed, as bytes.

    argv: list of strings. what: words for the error, e.g. ``clone /a to /b``. stdin: bytes.
    good: the exit codes that are no failure. user: (uid, gid) of who runs it; None: we.
    name: of the tool, where argv begins with another.
    Raises ``error`` with the tool's last words when it fails or takes longer than
    ``timeout_s`` seconds (None: however long), and Unsupported when it is not installed.
    """
    if shutil.which(argv[0]) is None:
        raise missing(argv[0])
    try:
        done = subprocess.run(
            command(argv),
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            timeout=timeout_s,
            env=environment(),
            check=False,
            **({"user": user[0], "group": user[1], "extra_groups": []} if user else {}),
        )
    except subprocess.TimeoutExpired:
        raise error(f"cannot {what}: {name or argv[0]} took longer than {timeout_s} s") from None
    if done.returncode not in good:
        raise error(f"cannot {what}: {last_words(done.stderr or done.stdout)}")
    return done.stdout
