"""libvirt's own definitions from Debian's source package, from the mirror that apt uses. They are
stored in the cache, not in this repository; files other than XML are omitted."""

import os
import re
import shutil
import tarfile
from pathlib import Path

from tests.lab import cache
from tests.lab.sh import LabError, run

PACKAGE = "libvirt"
KEPT = (".xml", ".rng")
CONFIGURED = ("/etc/apt/sources.list", "/etc/apt/sources.list.d")
OPTIONS = {
    "Dir::Etc::sourcelist": "/dev/null",
    "APT::Sandbox::User": "root",
    "Acquire::http::Timeout": "20",
    "Acquire::Retries": "2",
}


class NotReachable(LabError):
    """The source package cannot be had here; the text says why."""


def folder(say=lambda text: None):
    """The folder with the XML of the source package, got when it is not there yet.

    Raises NotReachable.
    """
    wanted = configured(codename())
    if not wanted:
        raise NotReachable("apt has no source of Debian's packages")
    name = f"{PACKAGE}-source-{cache.key(*wanted, *KEPT)}"
    return cache.built(name, lambda part: fetch(part, wanted), say)


def codename(path=Path("/etc/os-release")):
    """Debian's word for the release of this machine."""
    found = re.search(r"^VERSION_CODENAME=(\S+)$", path.read_text(encoding="utf-8"), re.M)
    return found.group(1) if found else ""


def configured(suite, places=CONFIGURED):
    """apt's configured lines and stanzas for this release, for source packages."""
    found = []
    for place in map(Path, places):
        files = sorted(place.iterdir()) if place.is_dir() else [place]
        for file in files:
            if file.suffix in (".list", ".sources") and file.is_file():
                text = file.read_text(encoding="utf-8")
                found += STYLES[file.suffix](text, suite)
    return found


def _lines(text, suite):
    """``deb http://… bookworm main`` as ``deb-src …``."""
    hits = [line.split() for line in text.splitlines() if re.match(r"deb\s", line)]
    return [
        " ".join(["deb-src", *words[1:]]) + "\n"
        for words in hits
        if any(re.fullmatch(rf"{suite}(-\w+)?", word) for word in words)
    ]


def _stanzas(text, suite):
    """The stanzas of a file ``debian.sources``."""
    found = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        suites = next((line for line in lines if line.startswith("Suites:")), "")
        if re.search(rf"\s{suite}(-\w+)?(\s|$)", suites):
            kept = [line for line in lines if not line.startswith("Types:")]
            found.append("\n".join(["Types: deb-src", *kept]) + "\n\n")
    return found


STYLES = {".list": _lines, ".sources": _stanzas}


def fetch(part, wanted):
    """Fill a folder: what apt has checked, without all that is no XML."""
    lists, configuration = part / "apt/lists", part / "apt/sources"
    (lists / "partial").mkdir(parents=True)
    configuration.mkdir()
    for suffix in STYLES:
        texts = [text for text in wanted if text.startswith("Types:") == (suffix == ".sources")]
        (configuration / f"corpus{suffix}").write_text("".join(texts), encoding="utf-8")
    options = [f"-o{name}={value}" for name, value in OPTIONS.items()]
    options += [f"-oDir::State::lists={lists}", f"-oDir::Etc::sourceparts={configuration}"]
    apt(["update", "-qq"], options, part)
    apt(["source", "-qq", "--download-only", PACKAGE], options, part)
    (archive,) = part.glob(f"{PACKAGE}_*.orig.tar.?z")
    unpack(archive, part)
    shutil.rmtree(part / "apt")
    for file in part.glob(f"{PACKAGE}_*"):
        file.unlink()


def apt(words, options, cwd):
    """Call apt-get. Raises NotReachable with the last thing that it said."""
    env = {**os.environ, "LC_ALL": "C.UTF-8"}
    try:
        done = run(["apt-get", *options, *words], check=False, env=env, cwd=cwd)
    except LabError as exc:
        raise NotReachable(f"apt-get {words[0]}: {exc}") from exc
    if done.returncode:
        said = (
            done.stderr.strip() or done.stdout.strip() or f"exit {done.returncode}"
        ).splitlines()
        raise NotReachable(f"apt-get {words[0]}: {said[0]}")


def unpack(archive, part):
    """The XML files and schemas of a tar archive, as plain files below a folder."""
    with tarfile.open(archive) as packed:
        for member in packed:
            if member.isfile() and member.name.endswith(KEPT) and ".." not in member.name:
                to = part / member.name.lstrip("/")
                to.parent.mkdir(parents=True, exist_ok=True)
                to.write_bytes(packed.extractfile(member).read())
