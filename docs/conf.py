"""Sphinx's configuration: the manuals below docs and the pages at the top, as one site."""

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.tools import release as releases  # noqa: E402

project = "Salt Virt"
copyright = "the authors of Salt Virt"
release = version = releases.version()

extensions = ["myst_parser"]
root_doc = "docs/index"
include_patterns = ["docs/**", "*.md", "tests/*/README.md"]
exclude_patterns = ["build", "tests/golden", "docs/changelog.d"]
source_suffix = {".md": "markdown"}

myst_heading_anchors = 4
nitpicky = True

html_theme = "furo"
html_title = f"Salt Virt {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
templates_path = ["templates"]
# pages that were directly below docs, or are part of another page now, lead there
MOVED = {
    f"docs/{page.stem}": f"docs/{page.parent.name}/{page.stem}"
    for folder in ("tutorial", "how-to", "explanation")
    for page in (HERE / folder).glob("*.md")
}
MOVED["docs/glossary"] = "docs/reference/glossary"
MOVED["docs/where"] = "docs/index"
MERGED = {
    "how-to/reach": "how-to/consoles",
    "how-to/console": "how-to/consoles",
    "how-to/page": "how-to/web",
    "how-to/backup": "how-to/master",
    "how-to/upgrade": "how-to/master",
    "how-to/formula": "how-to/hypervisors",
    "how-to/orchestration": "how-to/states",
    "explanation/scale": "explanation/limits",
    "explanation/concepts": "explanation/architecture",
    "how-to/runbook": "how-to/troubleshooting",
    "how-to/questions": "how-to/troubleshooting",
    "how-to/host-died": "how-to/troubleshooting",
    "how-to/monitoring": "how-to/metrics",
    "reference/facts": "reference/messages",
}
for old, new in MERGED.items():
    MOVED[f"docs/{old}"] = MOVED[f"docs/{old.split('/')[1]}"] = f"docs/{new}"
html_additional_pages = {"index": "redirect.html", **dict.fromkeys(MOVED, "moved.html")}
html_context = {"moved": MOVED}
html_show_sphinx = False
html_copy_source = False
