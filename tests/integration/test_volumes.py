"""Volumes in a real folder, as qemu-img and the file system show them."""

import json

import pytest

from tests.integration.hv import file_disk, guest

pytestmark = pytest.mark.lab

FOLDER = "/srv/labvolumes"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def pool(hv):
    """A running pool of an empty folder."""
    hv.call("virt.pool_define", "labvols", "dir", target=FOLDER, build=True)
    yield "labvols"
    hv.sh("virsh -q destroy labguest; virsh -q undefine labguest", check=False)
    hv.sh("virsh -q pool-destroy labvols; virsh -q pool-undefine labvols", check=False)
    hv.sh(f"rm -rf {FOLDER}")


def image(hv, name):
    return json.loads(hv.sh(f"qemu-img info -U --output=json {FOLDER}/{name}"))


def test_define(hv, pool):
    assert hv.call("virt.volume_define", pool, "a.raw", 8) is True
    assert hv.call("virt.volume_define", pool, "full.raw", "4MiB", allocation="4MiB") is True
    permissions = {"mode": "0640", "owner": 1, "group": 2}
    assert hv.call(
        *("virt.volume_define", pool, "b.qcow2", "1G"), format="qcow2", permissions=permissions,
        nocow=True, backing_store={"path": f"{FOLDER}/a.raw", "format": "raw"},
    )  # fmt: skip
    assert hv.sh(f"stat -c '%s %b' {FOLDER}/a.raw").split() == [str(8 * MIB), "0"]
    assert int(hv.sh(f"stat -c '%b' {FOLDER}/full.raw")) * 512 >= 4 * MIB
    assert hv.sh(f"stat -c '%a %u %g' {FOLDER}/b.qcow2").strip() == "640 1 2"
    told = image(hv, "b.qcow2")
    assert (told["format"], told["virtual-size"]) == ("qcow2", 1 << 30)
    assert told["full-backing-filename"] == f"{FOLDER}/a.raw"
    assert told["backing-filename-format"] == "raw"
    assert "a.raw" in hv.refuses("virt.volume_define", pool, "a.raw", 8)
    assert hv.call("virt.pool_list_volumes", pool) == ["a.raw", "b.qcow2", "full.raw"]


def test_infos_with_users_through_the_chain(hv, pool):
    for name, base in (("base", None), ("middle", "base"), ("top", "middle"), ("free", None)):
        backing = {"path": f"{FOLDER}/{base}", "format": "qcow2"} if base else None
        hv.call("virt.volume_define", pool, name, 8, format="qcow2", backing_store=backing)
    hv.define("", guest("labguest", file_disk(f"{FOLDER}/top")))
    found = hv.call("virt.volume_infos", pool)[pool]
    assert {name: volume["used_by"] for name, volume in found.items()} == {
        "base": ["labguest"], "middle": ["labguest"], "top": ["labguest"], "free": [],
    }  # fmt: skip
    assert found["middle"]["backing_store"] == {"path": f"{FOLDER}/base", "format": "qcow2"}
    told = hv.facts("vol-info", "--bytes", "top", "--pool", pool)
    assert found["top"]["capacity"] == int(told["Capacity"].split()[0]) == 8 * MIB
    assert found["top"]["type"] == told["Type"] == "file"
    assert found["top"]["path"] == hv.virsh("vol-path", "top", "--pool", pool).strip()
    assert list(hv.call("virt.volume_infos", pool, "free")[pool]) == ["free"]
    assert pool in hv.call("virt.volume_infos")
    assert hv.call("virt.volume_infos", pool, "nosuch") == {}


def test_delete_spares_what_a_guest_stands_on(hv, pool):
    hv.call("virt.volume_define", pool, "base", 8)
    backing = {"path": f"{FOLDER}/base", "format": "raw"}
    hv.call("virt.volume_define", pool, "top", 8, format="qcow2", backing_store=backing)
    hv.define("", guest("labguest", file_disk(f"{FOLDER}/top")))
    for name in ("base", "top"):
        assert "labguest" in hv.refuses("virt.volume_delete", pool, name)
    assert hv.sh(f"ls {FOLDER}").split() == ["base", "top"]
    hv.virsh("undefine", "labguest")
    assert hv.call("virt.volume_delete", pool, "top") is True
    assert hv.sh(f"ls {FOLDER}").split() == ["base"]
    assert "no volume 'top'" in hv.refuses("virt.volume_delete", pool, "top")


def test_upload_keeps_holes(hv, pool):
    hv.sh("truncate -s 64M /root/src.raw; cd /root; "
          "dd if=/dev/urandom of=src.raw bs=1M count=1 seek=3 conv=notrunc")  # fmt: skip
    for name, sparse in (("sparse.raw", True), ("plain.raw", False)):
        hv.call("virt.volume_define", pool, name, 100)
        assert hv.call("virt.volume_upload", pool, name, "/root/src.raw", sparse=sparse) is True
        hv.sh(f"cmp -n {64 * MIB} /root/src.raw {FOLDER}/{name}")
        assert hv.sh(f"stat -c %s {FOLDER}/{name}").strip() == str(100 * MIB)
    source, copy = (
        int(hv.sh(f"stat -c %b {path}")) for path in ("/root/src.raw", f"{FOLDER}/sparse.raw")
    )
    assert copy <= source * 1.05


def test_upload_of_a_part(hv, pool):
    hv.sh("printf 0123456789 > /root/digits")
    hv.call("virt.volume_define", pool, "a.raw", 1)
    hv.call("virt.volume_upload", pool, "a.raw", "/root/digits", offset=100, length=4)
    text = hv.sh(f"dd if={FOLDER}/a.raw bs=1 skip=99 count=6 status=none | od -An -c")
    assert text.split() == ["\\0", "0", "1", "2", "3", "\\0"]


def test_upload_refuses_what_does_not_fit_or_is_in_use(hv, pool):
    hv.sh("truncate -s 2M /root/big.raw")
    hv.call("virt.volume_define", pool, "a.raw", 1)
    before = hv.sh(f"sha256sum {FOLDER}/a.raw")
    assert "does not fit" in hv.refuses("virt.volume_upload", pool, "a.raw", "/root/big.raw")
    assert "/root/none" in hv.refuses("virt.volume_upload", pool, "a.raw", "/root/none")
    hv.define("", guest("labguest", file_disk(f"{FOLDER}/a.raw", kind="raw")))
    hv.virsh("start", "labguest")
    text = hv.refuses("virt.volume_upload", pool, "a.raw", "/root/big.raw", length=1024)
    assert "is open in labguest" in text
    hv.virsh("destroy", "labguest")
    assert hv.sh(f"sha256sum {FOLDER}/a.raw") == before


def test_resize(hv, pool):
    hv.call("virt.volume_define", pool, "a.qcow2", 8, format="qcow2")
    assert hv.call("virt.volume_resize", pool, "a.qcow2", "16M") is True
    assert image(hv, "a.qcow2")["virtual-size"] == 16 * MIB
    assert hv.call("virt.volume_resize", pool, "a.qcow2", 16) is True
    assert "shrink=True" in hv.refuses("virt.volume_resize", pool, "a.qcow2", 8)
    assert image(hv, "a.qcow2")["virtual-size"] == 16 * MIB
    hv.call("virt.volume_define", pool, "a.raw", 8)
    assert hv.call("virt.volume_resize", pool, "a.raw", 4, shrink=True) is True
    assert hv.sh(f"stat -c %s {FOLDER}/a.raw").strip() == str(4 * MIB)
    hv.define("", guest("labguest", file_disk(f"{FOLDER}/a.qcow2")))
    hv.virsh("start", "labguest")
    assert "virt.resize_disk" in hv.refuses("virt.volume_resize", pool, "a.qcow2", 32)


def test_clone(hv, pool):
    hv.call("virt.volume_define", pool, "a.qcow2", 8, format="qcow2")
    hv.sh(f"qemu-io -c 'write -P 7 1M 64k' {FOLDER}/a.qcow2")
    hv.call("virt.pool_define", "labother", "dir", target=f"{FOLDER}/other", build=True)
    try:
        assert hv.call("virt.volume_clone", pool, "a.qcow2", "b.qcow2") is True
        assert hv.call("virt.volume_clone", pool, "a.qcow2", "c.qcow2", target_pool="labother")
        for name in ("b.qcow2", "other/c.qcow2"):
            hv.sh(f"qemu-img compare {FOLDER}/a.qcow2 {FOLDER}/{name}")
            assert image(hv, name)["format"] == "qcow2"
        assert "b.qcow2" in hv.refuses("virt.volume_clone", pool, "a.qcow2", "b.qcow2")
    finally:
        hv.sh("virsh -q pool-destroy labother; virsh -q pool-undefine labother")


def test_from_xml(hv, pool):
    text = f"<volume><name>x.raw</name><capacity>{MIB}</capacity></volume>"
    assert hv.call("virt.define_vol_xml_str", text, pool=pool) is True
    hv.sh(f"echo '{text.replace('x.raw', 'y.raw')}' > /root/v.xml")
    assert hv.call("virt.define_vol_xml_path", "/root/v.xml", pool=pool) is True
    assert hv.sh(f"stat -c '%n %s' {FOLDER}/x.raw {FOLDER}/y.raw").split() == [
        f"{FOLDER}/x.raw", str(MIB), f"{FOLDER}/y.raw", str(MIB),
    ]  # fmt: skip
    assert "no storage pool 'default'" in hv.refuses("virt.define_vol_xml_str", text)
