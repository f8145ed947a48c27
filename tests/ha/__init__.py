"""The simulator of high availability: docs/how-to/ha.md."""

import importlib.util
import os
import sys
from pathlib import Path

LIBRARY = str(Path(__file__).resolve().parents[2] / "_utils")
if LIBRARY not in sys.path:
    sys.path.insert(0, LIBRARY)
if importlib.util.find_spec("yaml") is None:  # Debian's own Python need not have it
    from tests.lab import testenv

    python = str(testenv.python(lambda text: print(text, file=sys.stderr)))
    os.execv(python, [python, *sys.orig_argv[1:]])
