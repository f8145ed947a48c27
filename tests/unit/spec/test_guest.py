"""Arguments of guests in all forms that Salt's documentation shows."""

import json
from pathlib import Path

import pytest

from saltvirt.errors import InvalidInput
from saltvirt.spec import guest, network, pool, profiles
from saltvirt.spec.base import REMOVE
from saltvirt.spec.values import cpuset, numbers, paths


def parse(update=False, **arguments):
    if not update:
        arguments = {"cpu": 1, "mem": 512, **arguments}
    return guest.parse("web1", update=update, **arguments)


def test_every_argument_of_salts_own_functions_is_known():
    """What virt.init, update, defined and running took, but for what is not the guest's."""
    salt = {
        "init": "nic interfaces hypervisor start disk disks saltenv seed install pub_key priv_key "
        "seed_cmd graphics os_type arch boot boot_dev numatune hypervisor_features clock serials "
        "consoles stop_on_reboot host_devices cpu mem config image enable_vnc enable_qcow "
        "serial_type",
        "update": "disk_profile nic_profile autostart",
        "running": "vm_type",
    }
    assert set(" ".join(salt.values()).split()) <= set(guest.arguments())


@pytest.mark.parametrize("value", [2, "2"])
def test_numbers(value):
    assert parse(cpu=value).cpu.maximum == 2


@pytest.mark.parametrize(
    ("value", "kib"),
    [(512, 524288), ("512", 524288), ("1g", 1048576), ("512MiB", 524288), ("1.5 G", 1572864)],
)
def test_memory(value, kib):
    assert parse(mem=value).memory.boot_kib == kib
    assert parse(mem={"boot": value}).memory.boot_kib == kib


@pytest.mark.parametrize("nothing", [None, 0])
def test_nothing_in_an_update_changes_nothing(nothing):
    spec = parse(update=True, cpu=nothing, mem=nothing)
    assert (spec.cpu.maximum, spec.memory.boot_kib) == (None, None)


def test_none_inside_a_dictionary_removes():
    spec = parse(update=True, mem={"hard_limit": None}, boot={"kernel": None})
    assert spec.memory.hard_limit_kib is REMOVE
    assert spec.boot.kernel is REMOVE


def source(**other):
    """A disk named a on a server."""
    there = {"protocol": "iscsi", "name": "iqn.a:b/1", "hosts": ["h"]}
    return {"name": "a", "source": {**there, **other}}


WRONG = [
    ({"cpu": None}, "cpu is missing"),
    ({"cpu": -1}, "cpu '?-1"),
    ({"cpu": 1.5}, "cpu 1.5"),
    ({"cpu": True}, "cpu True"),
    ({"cpu": {"maximum": 2, "current": 3}}, "current 3 is more than maximum 2"),
    ({"cpu": {"maximun": 2}}, "did you mean 'maximum'"),
    ({"cpu": {"maximum": 4, "topology": {"sockets": 1, "cores": 1, "threads": 1}}}, "makes 1 CPU"),
    ({"cpu": {"maximum": 1, "features": {"pcid": "maybe"}}}, "cpu:features:pcid"),
    ({"cpu": {"maximum": 1, "vcpus": {3: {"enabled": True}}}}, "vcpus has 3"),
    ({"cpu": {"maximum": 1, "cpuset": "a-b"}}, "cpu:cpuset 'a-b'"),
    ({"cpu": {"maximum": 1, "model": {"vendor_id": "short"}}}, "12 characters"),
    ({"cpu": {"maximum": 1, "tuning": {"vcpusched": [{"priority": 3}]}}}, "scheduler is missing"),
    ({"cpu": "9" * 5000}, "cpu '9+ … is not a positive whole number"),
    ({"cpu": 16**5000}, "cpu a int too large to show is not"),
    ({"cpu": {"maximum": 1, "cpuset": "9" * 5000}}, "cpu:cpuset '9+ … is not a set of numbers"),
    ({"mem": "9" * 5000}, "mem '9+ … is not a positive size"),
    ({"mem": "lots"}, "mem 'lots'"),
    ({"mem": "1b"}, "mem '1b' is less than 1 KiB"),
    ({"mem": {"boot": 512, "max": "1g"}}, "max needs slots"),
    ({"mem": {"boot": 512, "current": 1024}}, "current is more than boot"),
    ({"mem": {"boot": "2g", "max": "1g", "slots": 1}}, "boot is more than max"),
    ({"mem": {"boot": 512, "hugepages": [{"sise": "2m"}]}}, "did you mean 'size'"),
    ({"boot": {"efi": True, "loader": "/a", "nvram": "/b"}}, "either efi or loader"),
    ({"boot": {"loader": "/a"}}, "nvram is missing"),
    ({"boot": {"kernel": "boot/vmlinuz"}}, "absolute path"),
    ({"boot_dev": "hd usb"}, "boot_dev: unknown 'usb'"),
    ({"boot_dev": "hd hd"}, "twice"),
    ({"boot_dev": 5}, "boot_dev 5 is not a list of boot devices"),
    ({"numatune": {"memory": {"mode": "lax"}}}, "numatune:memory:mode"),
    ({"hypervisor_features": {"kvm-hint-dedicatd": True}}, "did you mean 'kvm-hint-dedicated'"),
    ({"clock": {"timezone": "CET", "adjustment": 5}}, "exclude each other"),
    ({"clock": {"timers": {"tick": {}}}}, "clock:timers: unknown 'tick'"),
    ({"disks": [{"size": 1}]}, "name is missing"),
    ({"disks": [{"name": "a", "size": 0}]}, "disks:a:size"),
    ({"disks": [{"name": "a"}, {"name": "a", "pool": "b"}], "disk": None}, None),
    ({"disks": [{"name": "a", "overlay_image": True}]}, "overlay_image needs image"),
    ({"disks": [{"name": "a", "backing_store_path": "/b"}]}, "needs backing_store_format"),
    ({"disks": [{"name": "a", "source_file": "../../etc/shadow"}]}, "absolute path"),
    ({"disks": [{"name": "a", "source": {"protocol": "nbd"}}]}, "hosts is missing"),
    ({"disks": [source(hosts=["a b"])]}, "hosts.0. 'a b' is not a host name with an optional port"),
    ({"disks": [source(hosts=["h:0"])]}, "hosts.0. '0' must be from 1 to 65535"),
    ({"disks": [source(auth={"username": "u"})]}, "auth: name the libvirt secret by either usage"),
    ({"disks": [source(protocol=None)]}, "source: protocol is missing; one of rbd, "),
    ({"disks": [source(name=None)]}, "disks:a:source: name is missing"),
    ({"disks": [{"name": "a", "source": "smb://h/x"}]}, "'smb://h/x' is not a URL of rbd, "),
    ({"disks": [{"name": "a", "source": "http:///x"}]}, "'http:///x' is not a URL of rbd, "),
    ({"disks": [{"name": "a", "source": "http://h:99999/x"}]}, "not a valid URL: its host or port"),
    ({"disks": [{"name": "a", "source_file": "http://h:a/x"}]}, "disks:a 'http://h:a/x' is not a"),
    ({"disks": [{"name": "a", "source_file": "http://[::1/x"}]}, "its host or port"),
    ({"disks": [{"name": "a", "source": "rbd://h"}]}, "disks:a:source: name is missing"),
    ({"disks": [{"name": "a", "target": "nvme0n1"}]}, "target 'nvme0n1' is not a target such as"),
    ({"disks": [{"name": "a", "image": "/b", "overlay_image": True, "format": "raw"}]},
     "overlay_image needs format qcow2, not raw"),
    ({"disks": [{"name": "a", "source": "http://h/x", "source_file": "/b"}]},
     "disks:a: give either source or source_file"),
    ({"disks": [{"name": "a/b"}]}, "disks:a/b:name"),
    ({"disks": {"name": "a"}}, "disks must be a list"),
    ({"disks": ["a"]}, r"disks\[0\] must be a dictionary"),
    ({"interfaces": [{"name": "e", "mac": "01:23:45:67:89:AB"}]}, "multicast"),
    ({"interfaces": [{"name": "e", "mac": "nope"}]}, "MAC address"),
    ({"interfaces": [{"name": "e", "mode": "vepa"}]}, "type direct"),
    ({"interfaces": [{"name": "e", "target": "vnet0"}]}, "libvirt's own"),
    ({"interfaces": [{"name": "e", "vlan": 5000}]}, "from 0 to 4095"),
    ({"interfaces": [{"name": "e", "vlan": "x"}]}, "vlan 'x' is not a whole number"),
    ({"interfaces": [{"name": "e", "vlan": {"tags": []}}]}, "vlan: tags is missing"),
    ({"interfaces": [{"name": "e", "vlan": {"tags": [{"id": None}]}}]}, "tags.0.: id is missing"),
    ({"interfaces": [{"name": "e", "vlan": {"trunk": False, "tags": [{"id": 1}, {"id": 2}]}}]},
     "vlan: more than one tag needs trunk"),
    ({"interfaces": [{"name": "e", "mtu": "9" * 5000}]}, "mtu '9+ … is not a whole number"),
    ({"interfaces": [{"name": "e", "gateways": ["192.0.2"]}]}, "gateways.0. '192.0.2' is not an"),
    ({"interfaces": [{"name": "e", "addresses": ["192.0.2.7/33"]}]},
     "addresses.0. '192.0.2.7/33' is not an address such as 192.0.2.7/24"),
    ({"interfaces": ["e"]}, "interfaces.0. must be a dictionary, not 'e'"),
    ({"graphics": {"port": 1}}, "type is missing"),
    ({"graphics": "vcn"}, "did you mean 'vnc'"),
    ({"graphics": {"type": "vnc", "tls_port": 5901}}, "tls_port is for spice"),
    ({"graphics": {"type": "vnc", "port": 99999}}, "from 1 to 65535"),
    ({"graphics": {"type": "vnc", "listen": {"type": "network"}}}, "listen: network is missing"),
    ({"graphics": {"type": "vnc", "listen": "1:2"}}, "listen: '1:2' is not an address"),
    ({"serials": [{"type": "file"}]}, "needs a path"),
    ({"serials": ["tpc"]}, "did you mean 'tcp'"),
    ({"host_devices": [{"type": "pci", "bus": "1"}]}, "slot, function missing"),
    ({"host_devices": [{"type": "pci", "bus": None, "slot": 1, "function": 0}]}, "bus missing"),
    ({"host_devices": [{"type": "usb", "vendor": "0x46d", "product": "mouse"}]},
     "product 'mouse' is not a hexadecimal number"),
    ({"host_devices": [{"type": "pci", "bus": "f" * 5000}]}, "bus 'f+ … is not a hexadecimal"),
    ({"host_devices": [{"rom_file": "/rom"}]}, "host_devices.0.: name or type is missing"),
    ({"tpm": {"device": "/dev/tpm0"}}, "type passthrough"),
    ({"watchdog": {"action": "explode"}}, "watchdog:action"),
    ({"stop_on_reboot": True, "on_reboot": "restart"}, "contradict"),
    ({"image": "/a.img", "disk": None}, "image needs a disk"),
    ({"overlay": True}, "need image"),
    ({"image_hash": "md5=1"}, "needs image"),
    ({"image": "/a", "disks": [{"name": "system", "image": "/b"}]}, "contradict"),
    ({"grahpics": "vnc"}, "did you mean 'graphics'"),
    ({"metadata": {"a b": "c"}}, "metadata"),
    ({"title": "two\x00lines"}, "title"),
    ({"title": "two\nlines"}, "title"),
    ({"title": "one\n"}, "title"),
    ({"title": "half\ud800"}, "title"),
    ({"description": "half\udfff"}, "description"),
    ({"title": "x" * 256}, "title has more than 255 characters"),
    ({"description": "x" * 8193}, "description has more than 8192 characters"),
    ({"metadata": {"a": "half\ud83d"}}, "metadata:a"),
    ({"autostart": "maybe"}, "autostart"),
    ({"disk": ["web"]}, "disk profile .'web'. is not the name of a profile"),
    ({"disks": [{"name": "a", "target": "vdb"}, {"name": "b", "target": "vdb"}]},
     "disks: the target vdb is requested twice"),
    ({"boot_dev": "hd", "disks": [{"name": "a", "boot_order": 1}]},
     "boot_dev and the boot_order of a exclude each other: give one"),
    ({"interfaces": [{"name": "e", "bridge": "br0", "hostdev": "0000:03:10.1"}]},
     "interface e: bridge and hostdev exclude each other"),
    ({"interfaces": [{"name": "e", "hostdev": None}]}, "hostdev is missing"),
    ({"interfaces": [{"name": "e", "hostdev": "0000:03:10.1", "link": False}]}, "link is not for"),
    ({"interfaces": [{"name": "e", "hostdev": "0000:03:10.1", "portgroup": "p"}]}, "portgroup is"),
    ({"filesystems": [{"source": "/a", "target": "ü" * 19}]}, "at most 36 bytes"),
    ({"sysinfo": {"bios": {"release": "x.y"}}}, "not a release such as 2.10"),
    ({"sysinfo": {"bios": {"release": "1.256"}}}, "not a release such as 2.10"),
    ({"sysinfo": {"fw_cfg": {"opt/a,file=/etc/shadow": "x"}}}, "at most 55 letters"),
    ({"sysinfo": {"fw_cfg": {"opt/": "x"}}}, "at most 55 letters"),
    ({"sysinfo": {"fw_cfg": {"opt/a": True}}}, "fw_cfg:opt/a: a text without commas"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_wrong_input_is_refused_by_name(arguments, message):
    if message is None:  # the same name again is laid over the first
        assert [disk.pool for disk in parse(**arguments).disks] == ["b"]
        return
    with pytest.raises(InvalidInput, match=message) as error:
        parse(**arguments)
    assert "\n" not in str(error.value)


def test_a_guests_name_is_checked():
    with pytest.raises(InvalidInput, match="guest's name"):
        guest.parse("../evil", 1, 512)


def test_secrets_are_in_no_repr_and_no_error():
    spec = parse(graphics={"type": "vnc", "password": "hush-hush"}, priv_key="PRIVATE")
    assert spec.graphics.password == "hush-hush"
    assert "hush" not in repr(spec)
    assert "PRIVATE" not in repr(spec)
    with pytest.raises(InvalidInput) as error:
        parse(graphics={"type": "vnc", "password": "hush\x00hush"})
    assert "hush" not in str(error.value)


def test_a_comma_in_fw_cfg_which_begins_an_option_of_qemu_is_refused_without_the_text():
    with pytest.raises(InvalidInput, match="a text without commas") as error:
        parse(sysinfo={"fw_cfg": {"opt/a": "hush,file=/etc/shadow"}})
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("device", ["panic", "vsock", "rng", "scsi_controller"])
def test_a_device_is_switched_by_words(device):
    parsed = [getattr(parse(**{device: word}), device) for word in (True, "yes", "On", {})]
    assert all(spec == parsed[0] for spec in parsed) and parsed[0] is not None
    assert {getattr(parse(**{device: word}), device) for word in (False, "no", "off", "none")} == {
        "none"
    }


def test_the_default_cache_is_no_setting():
    [disk] = parse(disks=[{"name": "a", "cache": "default"}], disk=None).disks
    assert disk.cache is REMOVE


def test_a_display_of_two_words_is_a_type():
    assert parse(graphics="egl-headless").graphics.type == "egl-headless"


def test_the_short_arguments_of_the_runner():
    spec = parse(enable_vnc=True, serial_type="pty", image="salt://a.img", enable_qcow=True)
    assert spec.graphics.type == "vnc"
    assert [serial.type for serial in spec.serials] == ["pty"]
    assert (spec.disks[0].image, spec.disks[0].overlay_image) == ("salt://a.img", True)
    spec = parse(serial_type="None", enable_vnc=False)
    assert (spec.serials, spec.graphics) == (None, None)


def test_a_parser_is_asked_for_what_was_not_said():
    """None says nothing, as in an SLS whose variable has no value."""
    spec = parse(tpm=None, rng=None, watchdog=None, memballoon=None)
    assert (spec.tpm, spec.rng, spec.watchdog, spec.memballoon) == (None, None, None, None)


def test_how_a_timer_catches_up():
    spec = parse(clock={"timers": {"rtc": {"catchup": {"slew": 120, "limit": None}}}})
    timer = spec.clock.timers["rtc"]
    assert (timer.slew, timer.threshold, timer.limit) == (120, None, REMOVE)


def test_a_topology_that_says_a_part_makes_no_number():
    """It goes with any maximum: libvirt counts the rest."""
    cpu = parse(cpu={"maximum": 4, "topology": {"cores": 4}}).cpu
    assert (cpu.topology.total(), cpu.topology.cores) == (None, 4)


def test_none_in_an_item_of_a_list_is_not_said():
    """There is nothing that it could take away: the item is written anew."""
    (device,) = parse(host_devices=[{"name": "usb_1_1_2", "type": None}]).host_devices
    assert (device.type, device.resolved) == (None, False)
    (disk,) = parse(disk=None, disks=[source(hosts=[{"name": "h", "port": None}])]).disks
    assert disk.source.hosts[0].port is None


def test_two_specs_share_nothing():
    first = parse(image="salt://a.img")
    second = parse()
    assert (first.disks[0].image, second.disks[0].image) == ("salt://a.img", None)


def test_the_image_goes_on_the_first_hard_disk():
    cd = {"name": "cd", "device": "cdrom", "source_file": "/a.iso"}
    spec = parse(disk=None, disks=[cd, {"name": "b", "size": 1}], image="/x", image_hash="md5=1")
    assert [(d.image, d.image_hash) for d in spec.disks] == [(None, None), ("/x", "md5=1")]


def test_the_image_of_the_call_wins_over_the_profiles():
    known = profiles.Profiles(disk={"default": [{"system": {"image": "/old", "size": 1}}]})
    spec = parse(image="/new", known_profiles=known, overlay=True)
    assert (spec.disks[0].image, spec.disks[0].overlay_image) == ("/new", True)
    assert parse(known_profiles=known, enable_qcow=True).disks[0].overlay_image is True


def test_drives_without_medium():
    cd = {"name": "cd", "device": "cdrom"}
    for medium, empty in (
        ({}, True),
        ({"source_file": None}, True),
        ({"source_file": "/a"}, False),
    ):
        assert parse(disk=None, disks=[{**cd, **medium}]).disks[0].empty is empty


@pytest.mark.parametrize(
    ("word", "found"),
    [
        ("pci_0000_03_00_0", ("pci", "pci_0000_03_00_0", 3)),
        ("0000:03:00.0", ("pci", "pci_0000_03_00_0", 3)),
        ("046d:c52b", ("usb", None, None)),
        ("usb_1_1_2", (None, "usb_1_1_2", None)),
    ],
)
def test_host_devices(word, found):
    (device,) = parse(host_devices=[word]).host_devices
    assert (device.type, device.name, device.bus) == found
    assert device.resolved is (device.type is not None)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [("1-4,^2", "1,3-4"), (3, "3"), ("5,6", "5-6"), ("0, 4", "0,4"), ("0-3,^0-3,7", "7")],
)
def test_cpu_sets_are_written_as_libvirt_does(text, canonical):
    assert cpuset(text, "cpuset") == canonical
    assert numbers(canonical) == numbers(str(text).replace(" ", ""))


@pytest.mark.parametrize("given", ["/srv/a", {"/srv/a": None}, ["/srv/a", 5], 5])
def test_one_path_is_no_list_of_paths(given):
    """A text taken for a list would be its letters."""
    assert paths(("/srv/a",), "unused") == ["/srv/a"]
    with pytest.raises(InvalidInput, match=r"^unused .* is not a list of paths$"):
        paths(given, "unused")


def test_an_empty_cpu_set():
    with pytest.raises(InvalidInput, match="empty"):
        cpuset("1,^1", "cpuset")


def test_an_old_word_for_xen():
    assert parse(os_type="linux").os_type == "xen"
    with pytest.raises(InvalidInput, match="os_type"):
        parse(os_type="windows")


def test_yes_and_no():
    for word in ("yes", "True", "on", 1, True):
        assert parse(autostart=word).autostart is True
    for word in ("no", "false", "off", 0, False):
        assert parse(autostart=word).autostart is False


@pytest.mark.parametrize(
    "made",
    [
        lambda text: parse(graphics=text),
        lambda text: parse(graphics=[text]),
        lambda text: parse(pillar=text),
        lambda text: pool.parse("p", "rbd", source_name="x", source_auth=text),
        lambda text: pool.from_state("p", "rbd", f"auth: {text}"),
    ],
)
def test_what_should_be_a_dictionary_may_hold_a_secret_and_is_not_shown(made):
    with pytest.raises(InvalidInput, match=r"must be a dictionary, not (str|list)$"):
        made("{username: u, password: hush")


def test_what_a_state_says_of_a_pool_s_source_is_known():
    with pytest.raises(InvalidInput, match="pool p: source: unknown 'hots', did you mean 'hosts'"):
        pool.from_state("p", "netfs", {"hots": ["filer"]}, target="/a")


def nfs(**arguments):
    return pool.parse("p", "netfs", target="/a", source_hosts=["h"], source_dir="/d", **arguments)


@pytest.mark.parametrize(
    "option", ["password=hush", "PASS=hush", "password2=hush", "username=anna%hush"]
)
def test_a_password_is_no_option_of_mount(option):
    with pytest.raises(InvalidInput, match="no passwords here") as error:
        nfs(source_mount_opts=[option])
    assert "hush" not in str(error.value)
    assert nfs(source_mount_opts=["passive"]).source_mount_opts == ["passive"]


@pytest.mark.parametrize("version", [True, "nfs4", "4.1.2", "", [4]])
def test_the_version_of_nfs_is_a_number(version):
    assert nfs(source_protocol_ver=4.2).source_protocol_ver == "4.2"
    with pytest.raises(InvalidInput, match="is not a version of NFS"):
        nfs(source_protocol_ver=version)


def test_nothing_in_a_list_of_texts_is_no_text():
    with pytest.raises(InvalidInput, match=r"oem_strings\[0\] None is not a text"):
        parse(sysinfo={"oem_strings": [None]})


def test_permissions_are_a_dictionary_or_a_list_of_one_key_each():
    """As Salt's documents write them."""
    asked = {"mode": "0750", "owner": 100}
    ways = (asked, [{"mode": "0750"}, {"owner": 100}])
    made = [pool.parse("p", "dir", target="/a", permissions=way).permissions for way in ways]
    assert made[0] == made[1] and (made[0].mode, made[0].owner) == ("0750", 100)


@pytest.mark.parametrize("url", ["http://me:hush@h:a/x", "smb://me:hush@h/x", "rbd://me:hush@h"])
def test_a_password_in_the_address_of_a_disk_is_not_shown(url):
    with pytest.raises(InvalidInput, match="disks:a") as error:
        parse(disks=[{"name": "a", "source": url}])
    assert "hush" not in str(error.value)


@pytest.mark.parametrize("key", ["source", "source_file"])
@pytest.mark.parametrize("url", ["http://me:hush@h/x", "https://me@h/x", "rbd://me@h/pool/x"])
def test_a_user_in_the_address_of_a_disk_is_not_dropped(key, url):
    with pytest.raises(InvalidInput, match=r"names a user.*auth: username.*secret") as error:
        parse(disks=[{"name": "a", key: url}])
    assert "hush" not in str(error.value)
    assert parse(disks=[{"name": "a", key: "http://h/x@y"}]).disks[-1].source.name == "/x@y"


@pytest.mark.parametrize("given", [{"chpasswd": "hush"}, ["hush"], "hush\0"])
def test_user_data_may_hold_a_password_and_is_not_shown(given):
    with pytest.raises(InvalidInput, match=r"user_data is not a text$"):
        parse(seed="cloud-init", user_data=given)


def test_salts_own_bookkeeping_is_dropped():
    assert parse(__pub_jid="1", __pub_fun="virt.init").name == "web1"
    made = network.parse("lab", bridge="br1", __pub_jid="1", __id__="lab")
    assert made == network.parse("lab", bridge="br1")


def test_a_spec_of_salts_yaml_with_strings_for_numbers():
    text = Path(__file__).with_name("init.json").read_text()
    spec = guest.parse(**json.loads(text))
    assert spec.cpu.tuning.vcpupin == {0: "1,3-4", 1: "0-1"}
    assert spec.cpu.vcpus[1].enabled is False
    assert spec.memory.slots == 10


@pytest.mark.parametrize("address", ["::", "::1", "fe80::1", "127.0.0.1", "hv1.example.com"])
def test_an_address_of_ipv6_is_one(address):
    """Also where it begins with a colon, as those for all and for this host do."""
    made = parse(
        graphics={"type": "vnc", "listen": {"type": "address", "address": address}},
        serials=[{"type": "tcp", "host": address, "port": 2222}],
    )
    assert (made.graphics.listen.address, made.serials[0].host) == (address, address)
    with pytest.raises(InvalidInput, match="address"):
        parse(graphics={"type": "vnc", "listen": {"address": ":::1"}})
