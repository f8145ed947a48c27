"""The copy of a target with restic, by the commands of docs/how-to/backups.md."""

import os
import re
import shutil
import subprocess

import pytest

from tests.functional.backed_up import UUID, Guest, assert_whole
from tests.tools import docs

pytestmark = pytest.mark.skipif(not shutil.which("restic"), reason="no restic")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "srv" / "backups"


@pytest.fixture
def sh(tmp_path, folder):
    """A shell in which the paths of the manual are below a folder of the test's."""
    (tmp_path / "restic.repository").write_text(str(tmp_path / "offsite"))

    def run(script):
        script = script.replace("/etc/salt-virt", str(tmp_path / "salt-virt"))
        script = script.replace("salt-virt/restic.repository", "restic.repository")
        script = script.replace("/srv/backups", str(folder))
        environment = {**os.environ, "HOME": str(tmp_path), "RESTIC_CACHE_DIR": f"{tmp_path}/cache"}
        return subprocess.run(
            ["bash", "-ec", script], env=environment, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip

    return run


@pytest.fixture
def manual():
    """The commands that make the copy."""
    text = (docs.DOCS / "how-to/backups.md").read_text(encoding="utf-8")
    section = text.partition("## Offsite and encrypted: restic")[2]
    return re.search("```sh\n(.*?)```", section, re.DOTALL)[1]


def test_the_copy_brings_every_backup_back_and_tells_nobody_else_anything(
    sh, manual, folder, tmp_path
):
    folder.parent.mkdir()
    guest = Guest(folder)
    secret = b"\x5a\xc3" * 32768
    for number in (1, 2, 3):
        guest.write(number, 0x5A)
        guest.back_up()
    half = folder / UUID / ".new-half"
    half.mkdir()
    (half / "vda.qcow2").write_bytes(secret)
    done = sh(manual)
    assert done.returncode == 0, done
    kept = [path for path in (tmp_path / "offsite").rglob("*") if path.is_file()]
    assert kept
    assert not any(b"record" in path.read_bytes() for path in kept)
    assert not any(b"\x5a" * 4096 in path.read_bytes() for path in kept)
    key = tmp_path / "salt-virt" / "restic.key"
    assert key.stat().st_mode & 0o777 == 0o600
    good = guest.target.catalog(UUID).good_ids
    shutil.rmtree(folder)
    exports = next(line for line in manual.splitlines() if line.startswith("export"))
    back = sh(f"{exports}\nrestic restore latest --target /")
    assert back.returncode == 0, back
    assert len(assert_whole(guest, tmp_path)) == len(good) == 3
    assert folder.stat().st_mode & 0o777 == 0o700
    assert not half.exists()
    key.write_text("another")
    assert sh(f"{exports}\nrestic snapshots").returncode
