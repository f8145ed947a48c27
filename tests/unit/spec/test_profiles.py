"""Profiles as Salt's documentation prints them."""

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.spec import guest, profiles

# salt/doc/topics/virt/nic.rst and disk.rst, as YAML reads them
NIC = {
    "dual": {"eth0": {"bridge": "service_br"}, "eth1": {"bridge": "storage_br"}},
    "single": {"eth0": {"bridge": "service_br"}},
    "triple": {
        "eth0": {"bridge": "service_br"},
        "eth1": {"bridge": "storage_br"},
        "eth2": {"bridge": "dmz_br"},
    },
    "all": {
        "eth0": {"bridge": "service_br"},
        "eth1": {"bridge": "storage_br"},
        "eth2": {"bridge": "dmz_br"},
        "eth3": {"bridge": "database_br"},
    },
    "dmz": {"eth0": {"bridge": "service_br"}, "eth1": {"bridge": "dmz_br"}},
    "database": {"eth0": {"bridge": "service_br"}, "eth1": {"bridge": "database_br"}},
}
DISK = {
    "default": [{"system": {"size": 8192}}],
    "database": [{"system": {"size": 8192}}, {"data": {"size": 30720}}],
    "web": [{"system": {"size": 1024}}, {"logs": {"size": 5120}}],
}
KNOWN = profiles.Profiles(disk=DISK, nic=NIC)
BRIDGES = {
    "single": ["service_br"],
    "dual": ["service_br", "storage_br"],
    "triple": ["service_br", "storage_br", "dmz_br"],
    "all": ["service_br", "storage_br", "dmz_br", "database_br"],
    "dmz": ["service_br", "dmz_br"],
    "database": ["service_br", "database_br"],
}
MIB = 1024 * 1024


def parse(known=KNOWN, **arguments):
    return guest.parse("web1", 1, 512, known_profiles=known, **arguments)


@pytest.mark.parametrize("kind", [None, "network"])
def test_a_source_without_its_type_is_of_the_default_s(kind):
    known = profiles.Profiles(nic={"default": {"eth0": {"type": kind} if kind else {}}})
    (nic,) = parse(known, interfaces=[{"name": "eth0", "source": "net1"}]).nics
    assert (nic.type, nic.source) == (kind or "bridge", "net1")


@pytest.mark.parametrize("name", BRIDGES)
def test_documented_nic_profiles(name):
    nics = parse(nic=name).nics
    assert [nic.source for nic in nics] == BRIDGES[name]
    assert {nic.type for nic in nics} == {"bridge"}
    assert [nic.name for nic in nics] == [f"eth{n}" for n in range(len(nics))]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("default", {"system": 8192}),
        ("database", {"system": 8192, "data": 30720}),
        ("web", {"system": 1024, "logs": 5120}),
    ],
)
def test_documented_disk_profiles(name, sizes):
    disks = parse(disk=name).disks
    assert {disk.name: disk.size_bytes for disk in disks} == {
        name: size * MIB for name, size in sizes.items()
    }


def test_the_form_with_sibling_keys():
    known = profiles.Profiles(
        disk={"default": [{"system": None, "size": 8192, "format": "qcow2", "model": "virtio"}]}
    )
    (disk,) = parse(known).disks
    assert (disk.name, disk.size_bytes, disk.format, disk.model) == (
        "system",
        8192 * MIB,
        "qcow2",
        "virtio",
    )


@pytest.mark.parametrize(
    "content",
    [
        [{"eth0": {"bridge": "b"}}, {"eth1": {"network": "n"}}],
        [{"eth0": None, "bridge": "b"}, {"name": "eth1", "network": "n"}],
        {"eth0": {"bridge": "b"}, "eth1": {"type": "network", "source": "n"}},
    ],
)
def test_nic_profiles_as_lists_and_dictionaries(content):
    nics = parse(profiles.Profiles(nic={"x": content}), nic="x").nics
    assert [(nic.name, nic.type, nic.source) for nic in nics] == [
        ("eth0", "bridge", "b"),
        ("eth1", "network", "n"),
    ]


def test_without_configuration_there_is_a_default():
    spec = parse(profiles.Profiles())
    assert [(d.name, d.size_bytes) for d in spec.disks] == [("system", 8192 * MIB)]
    assert [(n.type, n.source) for n in spec.nics] == [("bridge", "br0")]


def test_none_means_no_profile():
    spec = parse(nic=None, disk=None)
    assert (spec.nics, spec.disks) == ([], [])
    spec = parse(nic=None, disk=None, disks=[{"name": "a", "size": 1}])
    assert [disk.name for disk in spec.disks] == ["a"]


def test_the_callers_disks_are_laid_over_the_profile():
    spec = parse(disk="database", disks=[{"name": "data", "cache": "none"}, {"name": "x"}])
    assert [(d.name, d.size_bytes, d.cache) for d in spec.disks] == [
        ("system", 8192 * MIB, None),
        ("data", 30720 * MIB, "none"),
        ("x", None, None),
    ]
    assert DISK["database"][1] == {"data": {"size": 30720}}


def test_a_mac_alone_does_not_take_the_profiles_bridge_away():
    spec = parse(nic="dmz", interfaces=[{"name": "eth1", "mac": "52:54:00:12:34:56"}])
    assert [(n.source, n.mac) for n in spec.nics] == [
        ("service_br", None),
        ("dmz_br", "52:54:00:12:34:56"),
    ]


def test_a_network_takes_the_place_of_a_bridge():
    spec = parse(nic="single", interfaces=[{"name": "eth0", "network": "lan"}])
    assert [(n.type, n.source) for n in spec.nics] == [("network", "lan")]


def test_no_default_bridge_ends_in_a_network():
    with pytest.raises(InvalidInput, match="source is missing"):
        parse(interfaces=[{"name": "eth1", "type": "network"}])


@pytest.mark.parametrize("kind", ["nic", "disk"])
def test_a_profile_that_does_not_exist(kind):
    with pytest.raises(InvalidInput, match=f"{kind} profile: unknown 'wbe'") as error:
        parse(**{kind: "wbe"})
    assert kind == "nic" or "did you mean 'web'" in str(error.value)


def test_an_update_takes_no_profile_by_itself():
    spec = guest.parse("web1", update=True, known_profiles=KNOWN)
    assert (spec.disks, spec.nics) == (None, None)
    spec = guest.parse("web1", update=True, known_profiles=KNOWN, disks=[])
    assert spec.disks == []
    spec = guest.parse("web1", update=True, known_profiles=KNOWN, disk_profile="web")
    assert len(spec.disks) == 2


def getter(data):
    return lambda key, default=None: data.get(key, default)


@pytest.mark.parametrize("form", ["virt:{}", "virt.{}"])
def test_both_forms_of_the_option(form):
    found = profiles.read(getter({form.format("disk"): DISK, form.format("nic"): NIC}))
    assert (found.disk, found.nic) == (DISK, NIC)


def test_a_configuration_of_the_wrong_shape():
    with pytest.raises(InvalidInput, match="virt:disk must be"):
        profiles.read(getter({"virt:disk": ["system"]}))
    with pytest.raises(InvalidInput, match="is not a device"):
        parse(profiles.Profiles(disk={"default": ["system"]}))
    with pytest.raises(InvalidInput, match="disks: the name 'a' is given twice"):
        parse(profiles.Profiles(disk={"default": [{"a": {}}, {"a": {}}]}))
    with pytest.raises(InvalidInput, match="has no name"):
        parse(profiles.Profiles(disk={"default": [{"size": 1, "format": "raw"}]}))


def test_profiles_are_shown_with_their_defaults():
    shown = profiles.show(profiles.Profiles(nic={"dmz": NIC["dmz"]}), "kvm")
    system = {
        "name": "system",
        "size": 8192,
        "device": "disk",
        "format": "qcow2",
        "model": "virtio",
    }
    assert shown["disk"] == {"default": [system]}
    assert shown["nic"]["default"] == [
        {"name": "eth0", "type": "bridge", "source": "br0", "model": "virtio"}
    ]
    assert [nic["source"] for nic in shown["nic"]["dmz"]] == ["service_br", "dmz_br"]


@pytest.mark.parametrize(
    ("hypervisor", "disk", "nic"),
    [
        ("xen", {"device": "disk", "model": "xen"}, {"source": "br0"}),
        ("vmware", {"format": "vmdk", "model": "scsi"}, {"source": "DEFAULT", "model": "e1000"}),
        ("esxi", {"format": "vmdk", "model": "scsi"}, {"source": "DEFAULT", "model": "e1000"}),
        ("bhyve", {"format": "raw", "sparse_volume": False}, {"source": "bridge0"}),
        ("lxc", {"device": "disk"}, {"source": "br0"}),
    ],
)
def test_defaults_of_each_hypervisor(hypervisor, disk, nic):
    shown = profiles.show(profiles.Profiles(), hypervisor)
    assert disk.items() <= shown["disk"]["default"][0].items()
    assert nic.items() <= shown["nic"]["default"][0].items()


def test_a_cd_drive_in_a_profile_is_no_hard_disk():
    known = profiles.Profiles(disk={"x": [{"cd": {"device": "cdrom"}}]})
    assert profiles.show(known)["disk"]["x"] == [{"name": "cd", "device": "cdrom"}]
