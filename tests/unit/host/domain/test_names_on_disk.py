"""The names of domains from libvirt's files."""

import pytest

from saltvirt import errors
from saltvirt.host.domain import names_on_disk


@pytest.fixture
def folders(tmp_path):
    for path in ("etc/qemu/web1.xml", "etc/qemu/networks/net.xml", "etc/qemu/autostart/web1.xml",
                 "run/qemu/passing.xml", "run/qemu/web1.xml", "run/qemu/web1.pid",
                 "etc/lxc/box.xml"):  # fmt: skip
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    return tmp_path / "etc", tmp_path / "run"


def test_what_is_defined_and_what_runs(folders):
    assert names_on_disk.read("qemu:///system", folders) == ["passing", "web1"]
    assert names_on_disk.read("lxc:///system", folders) == ["box"]
    assert names_on_disk.read(None, folders) == ["box", "passing", "web1"]


@pytest.mark.parametrize("uri", ["test:///default", "qemu:///session", "qemu+tls://hv2/system"])
def test_no_list_is_better_than_a_wrong_one(folders, uri):
    with pytest.raises(errors.Unsupported):
        names_on_disk.read(uri, folders)


def test_a_host_without_definitions_says_nothing(tmp_path):
    with pytest.raises(errors.Unsupported):
        names_on_disk.read(None, (tmp_path / "etc", tmp_path / "run"))
    with pytest.raises(errors.Unsupported):
        names_on_disk.read("qemu:///system", (tmp_path / "etc", tmp_path / "run"))
