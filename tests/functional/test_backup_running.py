"""Where the QEMU of a guest that runs shows its disks."""

from types import SimpleNamespace

import pytest

from saltvirt import errors
from saltvirt.backupserve import running


def qemu_of(name, number=14):
    """A guest that runs as that number."""
    return SimpleNamespace(ID=lambda: number, name=lambda: name)


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """makes(names) folders of QEMUs."""
    monkeypatch.setattr(running, "_QEMU_FOLDERS", str(tmp_path))

    def makes(*names):
        for name in names:
            (tmp_path / name).mkdir()
        return tmp_path

    return makes


@pytest.mark.parametrize(("name", "its"), [
    ("web1", "domain-14-web1"), ("web", "domain-14-web"), ("[a]*", "domain-14-[a]*"),
    ("a-guest-with-a-long-name", "domain-14-a-guest-with-a-long-"),
])  # fmt: skip
def test_what_a_power_cut_left_of_another_guest_of_the_same_number_is_not_its_folder(
    folders, name, its
):
    there = folders(its, "domain-14-other", "domain-14-we", "domain-14-web12", "domain-1-web1")
    assert running.exports_of(qemu_of(name)) == str(there / its / "salt-virt.nbd")


@pytest.mark.parametrize("there", [[], ["domain-14-other"], ["domain-1-web1"], ["domain-140-web1"]])
def test_without_its_folder_nothing_is_shown(folders, there):
    folders(*there)
    with pytest.raises(errors.OperationFailed, match="web1 has no folder below"):
        running.exports_of(qemu_of("web1"))
