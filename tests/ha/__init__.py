"""The simulator of high availability: docs/ha.md."""

import sys
from pathlib import Path

LIBRARY = str(Path(__file__).resolve().parents[2] / "_utils")
if LIBRARY not in sys.path:
    sys.path.insert(0, LIBRARY)
