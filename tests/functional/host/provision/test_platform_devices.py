"""Devices and settings of a guest on a private libvirtd: accepted, unchanged by a second apply,
removed on request, and changed while the guest runs where libvirt can."""

import os

from tests.functional.daemon import libvirtd  # noqa: F401
from tests.functional.host.provision.test_pending import host  # noqa: F401

DEVICES = {
    "panic": "isa",
    "sound": "ich9",
    "video": {"model": "vga", "vram": 32},
    "iommu": {"model": "intel", "intremap": True},
}


def paths(answer):
    return {change["path"]: (change["old"], change["new"]) for change in answer["changes"]}


def apply_twice(host, **arguments):  # noqa: F811
    answer = host.update(**arguments)
    assert host.update(**arguments)["changes"] == []
    return answer


def test_devices_of_the_platform(host):  # noqa: F811
    host.init(machine="q35", graphics="vnc", on_crash="coredump-restart", **DEVICES)
    assert host.update(**DEVICES)["changes"] == []
    running = host.running()
    assert [running.panics[0].model, running.sounds[0].model, running.videos[0].model,
            running.iommus[0].model] == ["isa", "ich9", "vga", "intel"]  # fmt: skip
    answer = apply_twice(
        host, panic=False, sound="ac97", video="none", iommu={"intremap": None, "eim": False}
    )
    assert paths(answer) == {
        "panic": ("isa", None),
        "sound:model": ("ich9", "ac97"),
        "video:model": ("vga", "none"),
        "iommu:intremap": (True, None),
        "iommu:eim": (None, False),
    }
    assert not any(change["live"] for change in answer["changes"])
    assert "panic (isa now, then none)" in answer["pending"]


def test_a_vsock(host):  # noqa: F811
    live = os.path.exists("/dev/vhost-vsock")
    host.init(vsock=True, start=live)
    assert host.update(vsock=True)["changes"] == []
    assert paths(apply_twice(host, vsock=77)) == {
        "vsock:auto": (True, None),
        "vsock:cid": (None, 77),
    }
    assert paths(apply_twice(host, vsock="auto"))["vsock:cid"] == (77, None)
    answer = apply_twice(host, vsock=False)
    assert paths(answer) == {"vsock": ("virtio", None)}
    assert answer["changes"][0]["live"] is live
