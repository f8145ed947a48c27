"""``salt-run virt.console`` as a process of its own: URI FOLDER NAME [force]. The last line that it
prints is the answer."""

import json
import sys
from pathlib import Path

from saltvirt import errors
from saltvirt.console.master import console
from tests.functional.cloud import Fleet
from tests.functional.conftest import load


def fleet(uri, folder):
    """A master and its one hypervisor, both here."""
    found = Fleet(load(uri), Path(folder))
    found.seen = lambda hosts: hosts
    found.disconnect = lambda: None
    found.opts["virt"] = {"reach": {"addresses": {"hv1": "127.0.0.1"}}}
    found.opts["__cli"] = "salt-run"
    return found


if __name__ == "__main__":
    uri, folder, name, *force = sys.argv[1:]
    try:
        answer = console.run(fleet(uri, folder), name, bool(force), "^]")
    except errors.VirtError as exc:
        answer = {"error": exc.text}
    print(json.dumps(answer), flush=True)
    sys.exit("error" in answer)
