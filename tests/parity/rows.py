"""The table: from each signature and each documented value a row, made by code.

A row is a fresh host, steps that prepare it, and one call. What is said about an argument
stands in VALUES; a row differs in one argument from its function's base.
"""

import re

from tests.golden import cases, read
from tests.parity.sides import FOLDER

GOLDEN = (
    "aarch64", "boot-efi", "boot-kernel", "boot-loader", "chardevs", "clock-local", "clock-timers",
    "clock-zone", "cpu-all", "cpu-host", "devices", "disks", "disks-network", "emulated",
    "features", "host-devices", "i686", "lxc", "memory-all", "nics", "numatune-auto", "simple",
    "spice", "spice-network", "test", "vnc", "vnc-socket", "xen-hvm",
)  # fmt: skip
GUEST = """<domain type='{kind}'><name>{name}</name><memory>65536</memory>
<currentMemory>65536</currentMemory><vcpu>1</vcpu><os><type arch='{arch}'>hvm</type></os>
<devices>{devices}</devices></domain>"""
DISK = (
    "<disk type='file' device='disk'><driver name='qemu' type='raw'/>"
    f"<source file='{FOLDER}/data/g1.raw'/><target dev='vda' bus='virtio'/></disk>"
)
CDROM = (
    "<disk type='file' device='cdrom'><driver name='qemu' type='raw'/>"
    f"<source file='{FOLDER}/data/cd.iso'/><target dev='vdb' bus='virtio'/><readonly/></disk>"
)
NIC = (
    "<interface type='bridge'><mac address='52:54:00:aa:bb:01'/><source bridge='br0'/>"
    "<model type='virtio'/></interface>"
)


def guest(name="g1", host="test", devices=DISK + NIC):
    """The steps that make a guest as others define it."""
    kind, arch = ("test", "i686") if host == "test" else ("qemu", "x86_64")
    xml = GUEST.format(kind=kind, arch=arch, name=name, devices=devices)
    return [
        ["file", f"{FOLDER}/data/{name}.raw", 8],
        ["define", xml.replace("g1.raw", f"{name}.raw")],
    ]


def words(text):
    """The words of a text."""
    return text.split()


def row(function, *args, host="test", setup=(), **kwargs):
    """One row, without its number."""
    return {
        "host": host, "setup": list(setup), "function": function,
        "args": list(args), "kwargs": kwargs,
    }  # fmt: skip


def reads():  # noqa: PLR0912 - a table
    """What is asked and changes nothing."""
    nothing = words(
        "list_domains list_active_vms list_inactive_vms node_info node_devices "
        "freemem freecpu full_info virt_type get_hypervisor is_hyper capabilities "
        "domain_capabilities all_capabilities cpu_baseline list_networks list_pools "
        "pool_capabilities get_profiles vm_info vm_state vm_cputime vm_netstats "
        "vm_diskstats list_snapshots network_info pool_info volume_infos"
    )
    two = [*guest("g1"), *guest("g2", devices=DISK + CDROM + NIC), ["start", "g1"]]
    for name in nothing:
        for setup in ((), two):
            yield row(f"virt.{name}", setup=setup)
        if name not in ("full_info", "cpu_baseline"):
            yield row(f"virt.{name}", host="daemon", setup=guest(host="daemon"))
    of_guest = words(
        "vm_info vm_state get_nics get_macs get_graphics get_loader get_disks get_xml "
        "vm_cputime vm_netstats vm_diskstats list_snapshots"
    )
    for name in of_guest:
        for argument in ("test", "g1", "g2", "nosuch", "", "g 1", 1):
            yield row(f"virt.{name}", argument, setup=two)
        yield row(f"virt.{name}", "g1", host="daemon", setup=guest(host="daemon"))
        for golden in GOLDEN:
            if name in ("vm_cputime", "vm_netstats", "vm_diskstats", "list_snapshots"):
                continue
            yield row(f"virt.{name}", "web1", setup=[["define", captured(golden)]])
    for name in ("network_info", "network_get_xml", "pool_info", "pool_get_xml",
                 "pool_list_volumes"):  # fmt: skip
        for argument in ("default", "default-pool", "nosuch", ""):
            yield row(f"virt.{name}", argument)
    for kind in (None, "kvm", "qemu", "xen", "vmware", "esxi", "bhyve", "nosuch"):
        yield row("virt.get_profiles", hypervisor=kind)
        yield row("virt.get_profiles", hypervisor=kind, host="daemon")
    for more in ({"arch": "x86_64"}, {"arch": "i686"}, {"machine": "pc"}, {"machine": "q35"},
                 {"domain": "qemu"}, {"domain": "kvm"}, {"emulator": "/usr/bin/qemu-system-x86_64"},
                 {"emulator": "/nosuch"}, {"arch": "nosuch"}):  # fmt: skip
        yield row("virt.domain_capabilities", host="daemon", **more)
    for more in ({}, {"full": True}, {"migratable": True}, {"out": "salt"}, {"out": "nosuch"},
                 {"full": True, "out": "salt"}):  # fmt: skip
        yield row("virt.cpu_baseline", host="daemon", **more)
    for value in (None, {"a": 1}):
        yield row("virt.nesthash", value)


def captured(name):
    """A guest of any hypervisor as the test driver takes it: its type alone is another."""
    xml = read(f"domains/{name}.xml")
    xml = re.sub(r"(<domain [^>]*?)type=(['\"])\w+\2", r"\1type='test'", xml, count=1)
    xml = re.sub(r"<type[^>]*>\w+</type>", "<type arch='i686'>hvm</type>", xml, count=1)
    return re.sub(r"<name>[^<]*</name>", "<name>web1</name>", xml, count=1)


def lives():
    """What changes whether a guest runs, and what it has."""
    calls = [
        (f"virt.{name}", {})
        for name in words(
            "shutdown pause resume start stop reboot reset ctrl_alt_del undefine purge"
        )
    ]
    calls += [("virt.purge", {"dirs": True}), ("virt.purge", {"removables": True})]
    calls += [("virt.set_autostart", {"state": state})
              for state in ("on", "off", True, False, "nosuch")]  # fmt: skip
    calls += [("virt.setmem", {"memory": size, "config": stored})
              for size in (32, 64, 128, 0, -1, "64") for stored in (False, True)]  # fmt: skip
    calls += [("virt.setvcpus", {"vcpus": count, "config": stored})
              for count in (1, 2, 0, -1, 1000) for stored in (False, True)]  # fmt: skip
    calls += [("state:virt." + name, {"__test__": test})
              for name in ("stopped", "powered_off", "rebooted", "unpowered", "snapshot", "saved",
                           "reverted") for test in (False, True)]  # fmt: skip
    for state in ("off", "running", "paused", "nosuch"):
        steps = [] if state == "nosuch" else guest(devices=DISK + CDROM + NIC)
        if state in ("running", "paused"):
            steps.append(["start", "g1"])
        if state == "paused":
            steps.append(["suspend", "g1"])
        for function, more in calls:
            yield row(function, "g1", setup=steps, **more)
    shot = [*guest(), ["snapshot", "g1", "<domainsnapshot><name>s1</name></domainsnapshot>"]]
    shots = [*shot, ["snapshot", "g1", "<domainsnapshot><name>s2</name></domainsnapshot>"]]
    for setup in (guest(), shot, shots):
        for function, args, more in (
            ("virt.snapshot", ["g1"], {}), ("virt.snapshot", ["g1"], {"name": "mine"}),
            ("virt.snapshot", ["g1"], {"name": "mine", "suffix": "x"}),
            ("virt.snapshot", ["g1"], {"suffix": "x"}), ("virt.snapshot", ["g1"], {"name": "s1"}),
            ("virt.snapshot", ["g1"], {"name": ""}), ("virt.snapshot", ["g1"], {"name": "a/b"}),
            ("virt.list_snapshots", [], {}), ("virt.list_snapshots", ["g1"], {}),
            ("virt.delete_snapshots", ["g1"], {}), ("virt.delete_snapshots", ["g1", "s1"], {}),
            ("virt.delete_snapshots", ["g1", "s1", "s2"], {}),
            ("virt.delete_snapshots", ["g1", "nosuch"], {}), ("virt.revert_snapshot", ["g1"], {}),
            ("virt.revert_snapshot", ["g1", "s1"], {}),
            ("virt.revert_snapshot", ["g1", "nosuch"], {}),
            ("virt.revert_snapshot", ["g1", "s1"], {"cleanup": True}),
            ("virt.revert_snapshot", ["g1"], {"cleanup": True}), ("virt.undefine", ["g1"], {}),
            ("state:virt.saved", ["g1"], {}), ("state:virt.reverted", ["g1"], {}),
            ("state:virt.reverted", ["g1"], {"snapshot": "s1"}),
            ("state:virt.reverted", ["g1"], {"snapshot": "nosuch"}),
        ):  # fmt: skip
            yield row(function, *args, setup=setup, **more)


def definitions():
    """XML that a user hands in."""
    good = GUEST.format(kind="test", arch="i686", name="g1", devices="")
    bad = ("<domain", "", "<network/>", good.replace("test", "nosuch", 1))
    for name in ("define_xml", "create_xml"):
        for xml in (good, *bad):
            yield row(f"virt.{name}_str", xml)
            path = f"{FOLDER}/data/given.xml"
            yield row(f"virt.{name}_path", path, setup=[["text", path, xml]])
        yield row(f"virt.{name}_path", f"{FOLDER}/data/nosuch.xml")
    volume = "<volume><name>v1</name><capacity>1048576</capacity></volume>"
    for xml in (volume, "<volume/>", "<nosuch", ""):
        for pool in ({}, {"pool": "default-pool"}, {"pool": "default"}, {"pool": "nosuch"}):
            path = f"{FOLDER}/data/given.xml"
            yield row("virt.define_vol_xml_str", xml, **pool)
            yield row("virt.define_vol_xml_path", path, setup=[["text", path, xml]], **pool)


# each documented argument of a guest: its values
_CPU = cases._CPU
_TUNE = _CPU["tuning"]
VALUES = {
    "cpu": [
        1, 2, 0, "2", {"maximum": 2}, {"maximum": 4, "current": 2},
        {"maximum": 2, "placement": "static"}, {"maximum": 2, "cpuset": "0"},
        *({"maximum": 1, "mode": mode} for mode in ("custom", "host-model", "host-passthrough")),
        *({"maximum": 1, "mode": "custom", "model": {"name": "core2duo", **more}}
          for more in ({}, {"fallback": "allow"}, {"fallback": "forbid"},
                       {"vendor_id": "GenuineIntel"})),
        *({"maximum": 1, "match": match, "model": {"name": "core2duo"}}
          for match in ("minimum", "exact", "strict")),
        *({"maximum": 1, "check": check, "model": {"name": "core2duo"}}
          for check in ("none", "partial", "full")),
        {"maximum": 1, "vendor": "Intel", "model": {"name": "core2duo"}},
        {"maximum": 4, "topology": {"sockets": 1, "cores": 4, "threads": 1}},
        {"maximum": 4, "topology": {"sockets": 2, "cores": 2, "threads": 1}},
        *({"maximum": 1, "model": {"name": "core2duo"}, "features": {"lahf_lm": policy}}
          for policy in ("force", "require", "optional", "disable", "forbid")),
        {"maximum": 1, "mode": "host-passthrough", "cache": {"mode": "passthrough"}},
        {"maximum": 1, "model": {"name": "core2duo"}, "cache": {"level": 3, "mode": "emulate"}},
        {"maximum": 2, "numa": {0: {"cpus": "0", "memory": "32m"},
                                1: {"cpus": "1", "memory": "32m"}}},
        {"maximum": 2, "numa": {0: {"cpus": "0-1", "memory": "64m", "discard": True}}},
        {"maximum": 2, "numa": {0: {"cpus": "0-1", "memory": "64m", "memAccess": "shared"}}},
        {"maximum": 2, "numa": {0: {"cpus": "0", "memory": "32m", "distances": {0: 10, 1: 21}},
                                1: {"cpus": "1", "memory": "32m", "distances": {0: 21, 1: 10}}}},
        {"maximum": 2, "vcpus": {0: {"enabled": True, "hotpluggable": False, "order": 1},
                                 1: {"enabled": False, "hotpluggable": True}}, "current": 1},
        {"maximum": 1, "iothreads": 4}, {"maximum": 1, "iothreads": 0},
        *({"maximum": 4, "iothreads": 4, "tuning": {key: _TUNE[key]}} for key in words(
        "vcpupin emulatorpin iothreadpin shares period quota global_period "
        "global_quota emulator_period emulator_quota iothread_period iothread_quota "
        "vcpusched iothreadsched emulatorsched"
    )),
    ],
    "mem": [
        64, 0, "64", "64m", "1g", {"boot": 64}, {"boot": "64m", "current": "32m"},
        {"boot": "64m", "hard_limit": 128}, {"boot": "64m", "soft_limit": "48m"},
        {"boot": "64m", "hard_limit": "128m", "swap_hard_limit": "256m"},
        {"boot": "64m", "min_guarantee": "32m"}, {"boot": "64m", "nosharepages": True},
        {"boot": "64m", "locked": True}, {"boot": "64m", "hugepages": [{"size": "2m"}]},
        *({"boot": "64m", "source": source} for source in ("file", "anonymous", "memfd")),
        *({"boot": "64m", "access": access} for access in ("shared", "private")),
        *({"boot": "64m", "allocation": when} for when in ("immediate", "ondemand")),
        {"boot": "64m", "discard": True}, {"boot": "64MiB"}, {"boot": "64MB"}, {"boot": "0.5g"},
        {"boot": "nosuch"}, {},
    ],
    "graphics": [
        {"type": "vnc"}, {"type": "spice"}, {"type": "none"}, {"type": "vnc", "port": 5910},
        {"type": "spice", "port": 5910}, {"type": "spice", "port": 5910, "tls_port": 5911},
        {"type": "vnc", "listen": {"type": "address"}},
        {"type": "vnc", "listen": {"type": "address", "address": "127.0.0.1"}},
        {"type": "vnc", "listen": {"type": "address", "address": "::1"}},
        {"type": "vnc", "listen": {"type": "none"}}, {"type": "sdl"}, {"type": "nosuch"}, {},
    ],
    "boot": [
        {"kernel": "/k"}, {"kernel": "/k", "initrd": "/i"}, {"efi": False}, {"efi": "nosuch"},
        {"kernel": "/k", "initrd": "/i", "cmdline": "console=ttyS0"}, {"efi": True},
        {"loader": "/usr/share/OVMF/OVMF_CODE.fd", "nvram": "/usr/share/OVMF/OVMF_VARS.fd"}, {},
    ],
    "boot_dev": ["hd", "fd", "cdrom", "network", "network hd", "cdrom hd network", "nosuch", ""],
    "numatune": [
        {"memory": {"mode": "strict", "nodeset": "0"}}, {"memory": {"mode": "preferred",
        "nodeset": 0}}, {"memory": {"mode": "interleave", "nodeset": "0"}}, {},
    ],
    "hypervisor_features": [{"kvm-hint-dedicated": True}, {"kvm-hint-dedicated": False}, {}],
    "clock": [
        {"utc": True}, {"utc": False}, {"adjustment": 3600}, {"adjustment": "reset"},
        {"utc": False, "adjustment": 60}, {"timezone": "CEST"}, {},
        *({"timers": timers} for timers in (
            {"hpet": {"present": False}}, {"tsc": {"frequency": 3504000000, "mode": "native"}},
            {"rtc": {"track": "wall", "tickpolicy": "catchup", "slew": 4636, "threshold": 123,
                     "limit": 2342}}, {"pit": {"tickpolicy": "delay"}})),
    ],
    "serials": [
        [{"type": "pty"}], [{}], [{"type": "tcp", "port": 2222}], [{"type": "udp", "host":
        "127.0.0.1", "port": 2223}], [{"type": "tcp", "host": "127.0.0.1", "port": 2222,
        "protocol": "raw"}], [{"type": "tcp", "port": 2222, "tls": False}],
        [{"type": "file", "path": "/tmp/a.log"}], [{"type": "unix", "path": "/tmp/a.sock"}],
        [{"type": "pipe", "path": "/tmp/a.pipe"}], [{"type": "dev", "path": "/dev/null"}],
        [{"type": "pty", "target_port": 0}], [{"type": "pty", "target_type": "isa-serial"}],
        [{"type": "pty"}, {"type": "pty"}], [],
    ],
    "consoles": [
        [{"type": "pty"}], [{"type": "pty", "target_type": "virtio"}],
        [{"type": "pty", "target_type": "serial", "target_port": 0}], [],
    ],
    "stop_on_reboot": [True, False],
    "nic": ["default", None, "nosuch"],
    "interfaces": [
        [{"name": "eth0", "type": "bridge", "source": "br0"}],
        [{"name": "eth0", "type": "network", "source": "lan"}],
        [{"name": "eth0", "type": "bridge", "source": "br0", "mac": "52:54:00:11:22:33"}],
        *([{"name": "eth0", "type": "bridge", "source": "br0", "model": model}]
          for model in ("virtio", "e1000", "rtl8139")),
        [{"name": "eth0", "model": "e1000"}],
        [{"name": "eth0", "type": "bridge", "source": "br0"},
         {"name": "eth1", "type": "network", "source": "lan"}], [],
    ],
    "disks": [
        [{"name": "system", "size": 8}],
        *([{"name": "system", "size": 8, "format": kind}] for kind in ("qcow2", "raw", "vmdk")),
        *([{"name": "system", "size": 8, "model": bus}]
          for bus in ("virtio", "scsi", "ide", "sata", "usb")),
        *([{"name": "system", "size": 8, "io": io}] for io in ("native", "threads", "io_uring")),
        [{"name": "system", "size": 8}, {"name": "data", "size": 4}],
        [{"name": "system", "size": 8, "pool": FOLDER + "/data"}],
        [{"name": "system", "size": 8, "pool": "store"}],
        [{"name": "system", "size": 8, "pool": "nosuch"}],
        [{"name": "system", "size": 8, "format": "raw", "pool": "store"}],
        [{"name": "system", "source_file": FOLDER + "/data/base.raw", "format": "raw"}],
        [{"name": "system", "source_file": "there", "pool": "store", "format": "raw"}],
        [{"name": "system", "size": 8, "image": FOLDER + "/data/base.raw", "format": "raw"}],
        [{"name": "system", "size": 16, "image": FOLDER + "/data/base.raw", "format": "raw"}],
        [{"name": "system", "size": 16, "image": FOLDER + "/data/base.qcow2",
          "format": "qcow2"}],
        [{"name": "system", "size": 16, "image": FOLDER + "/data/base.qcow2",
          "overlay_image": True, "format": "qcow2"}],
        [{"name": "system", "size": 16, "image": FOLDER + "/data/base.raw", "pool": "store",
          "format": "raw"}],
        [{"name": "system", "size": 16, "pool": "store", "format": "qcow2",
          "backing_store_path": "there", "backing_store_format": "raw"}],
        [{"name": "system", "size": 8}, {"name": "cd", "device": "cdrom", "model": "ide",
          "source_file": FOLDER + "/data/base.raw", "format": "raw"}],
        [{"name": "system", "size": 8}, {"name": "cd", "device": "cdrom", "model": "ide",
          "source_file": None}],
        [{"name": "cd", "device": "cdrom", "model": "ide",
          "source_file": "http://dl.example.com/a.iso?k=1"}],
        [{"name": "fd", "device": "floppy", "source_file": FOLDER + "/data/base.raw",
          "format": "raw"}],
        [{"name": "system", "size": 8, "iothread_id": 2}], [],
    ],
    "disk": ["default", None, "nosuch"],
    "os_type": ["hvm", "nosuch"],
    "arch": ["x86_64", "i686", "nosuch"],
    "hypervisor": ["qemu", "kvm", "nosuch"],
    "start": [False],
}  # fmt: skip
STORE = [
    ["file", f"{FOLDER}/data/base.raw", 8],
    ["file", f"{FOLDER}/data/base.qcow2", 8, "qcow2"],
    ["file", f"{FOLDER}/data/store/there", 8],
    ["pool", f"<pool type='dir'><name>store</name><target><path>{FOLDER}/data/store</path>"
             "</target></pool>"],
    ["network", "<network><name>lan</name><forward mode='bridge'/><bridge name='br0'/></network>"],
]  # fmt: skip
INIT = {"cpu": 1, "mem": 64, "disk": None, "nic": None, "start": False, "seed": False}


def inits():
    """Guests that are made: one argument at a time, on a libvirtd."""
    for argument, values in VALUES.items():
        for value in values:
            more = {**INIT, argument: value}
            yield row("virt.init", "g1", host="daemon", setup=STORE, **more)
    for name in ("g1", "web-1.example.com", "a b", "a/b", "", "1", "G1"):
        yield row("virt.init", name, host="daemon", setup=STORE, **INIT)
    yield row("virt.init", "g1", host="daemon", setup=[*STORE, *guest(host="daemon")], **INIT)


UPDATED = {"nic": "nic_profile", "disk": "disk_profile"}


def updates():
    """Guests that others defined are changed: one argument at a time."""
    there = [*STORE, *guest(host="daemon")]
    not_taken = ("os_type", "arch", "hypervisor", "start")
    for argument, values in VALUES.items():
        if argument in not_taken:
            continue
        for value in values:
            more = {UPDATED.get(argument, argument): value}
            yield row("virt.update", "g1", host="daemon", setup=there, **more)
            if argument in ("cpu", "mem", "disks", "interfaces", "graphics", "boot_dev"):
                yield row("virt.update", "g1", host="daemon", setup=there, test=True, **more)
    yield row("virt.update", "g1", host="daemon", setup=there)
    yield row("virt.update", "nosuch", host="daemon", cpu=2)
    for argument in ("cpu", "mem", "graphics", "boot_dev", "clock", "serials", "interfaces"):
        for value in VALUES[argument][:4]:
            for test in (False, True):
                for state in ("defined", "running"):
                    more = {"cpu": 1, "mem": 64, argument: value, "__test__": test}
                    if state == "running" and not test:
                        continue
                    yield row(f"state:virt.{state}", "g1", host="daemon", setup=there, **more)


NETWORK_VALUES = {
    "forward": ["nat", "bridge", "route", "open", "private", "vepa", "passthrough", "hostdev",
                None, "nosuch"],
    "bridge": ["virbr9", "br0", None],
    "ipv4_config": [
        {"cidr": "192.168.124.0/24"},
        {"cidr": "192.168.124.0/24",
         "dhcp_ranges": [{"start": "192.168.124.10", "end": "192.168.124.20"}]},
        {"cidr": "192.168.124.0/24", "hosts": [{"ip": "192.168.124.5", "mac": "52:54:00:00:00:01",
         "name": "a"}]},
        {"cidr": "192.168.124.0/24", "tftp": "/srv/tftp"},
        {"cidr": "192.168.124.0/24", "bootp": {"file": "pxelinux.0", "server": "10.0.0.1"}},
        {"cidr": "nosuch"}, {},
    ],
    "ipv6_config": [
        {"cidr": "2001:db8:ca2:2::/64"},
        {"cidr": "2001:db8:ca2:2::/64", "hosts": [{"ip": "2001:db8:ca2:2::3",
         "id": "0:1:0:1:18:aa:62:fe:0:16:3e:44:55:66"}]},
        {"cidr": "2001:db8:ca2:2::/64", "dhcp_ranges": [{"start": "2001:db8:ca2:2:1::10",
         "end": "2001:db8:ca2:2:1::ff"}]},
    ],
    "vport": ["openvswitch", {"type": "openvswitch", "parameters":
              {"interfaceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"}}],
    "tag": [5, "5", {"tags": [{"id": 5}]}, {"trunk": True, "tags": [{"id": 42, "nativeMode":
            "untagged"}, {"id": 47}]}],
    "autostart": [True, False],
    "mtu": [9000, "1500"],
    "domain": ["lab.acme.org", {"name": "lab.acme.org", "localOnly": True}],
    "nat": [{"address": {"start": "1.2.3.4", "end": "1.2.3.10"}}, {"port": {"start": 500,
            "end": 1000}}, {}],
    "interfaces": ["eth0", "eth0 eth1"],
    "addresses": ["0000:04:00.1 0000:e3:01.2"],
    "physical_function": ["eth0"],
    "dns": [{"enable": False}, {"forwarders": [{"addr": "8.8.8.8"}, {"domain": "example.com",
            "addr": "192.168.1.1"}]}, {"txt": {"host.widgets.com.": "printer=lpr5"}},
            {"hosts": {"192.168.1.2": ["mirror.acme.lab"]}},
            {"hosts": {"192.168.1.2": {"name": "mirror.acme.lab"}}},
            {"srvs": [{"name": "srv1", "protocol": "tcp", "domain": "test.com", "target": ".",
                       "port": 1024, "priority": 10, "weight": 10}]}],
}  # fmt: skip
NAT = {"bridge": "virbr9", "forward": "nat", "ipv4_config": {"cidr": "192.168.124.0/24"}}
BRIDGED = {"bridge": "br0", "forward": "bridge"}
THERE = (
    "<network><name>n1</name><uuid>d5ce0f52-6f0f-4b0f-b4a1-0ef5a9f0a0c1</uuid>"
    "<forward mode='nat'/><bridge name='virbr9' stp='on' delay='0'/>"
    "<mac address='52:54:00:4d:01:02'/>"
    "<ip family='ipv4' address='192.168.124.1' prefix='24'/></network>"
)


def networks():  # noqa: PLR0912 - a table
    """Networks that are made and changed."""
    for argument, values in NETWORK_VALUES.items():
        for value in values:
            for base in (NAT, BRIDGED):
                if base is BRIDGED and argument in ("ipv4_config", "ipv6_config", "nat", "dns"):
                    continue
                asked = {**base, argument: value}
                yield row("virt.network_define", "n1", start=False, **asked)
                if argument == "autostart":
                    continue
                there = [["network", THERE, False]]
                yield row("virt.network_update", "n1", setup=there, **asked)
                if base is NAT:
                    yield row("virt.network_update", "n1", setup=there, test=True, **asked)
    for name in ("start", "stop", "undefine", "set_autostart"):
        for setup in ([["network", THERE, False]], [["network", THERE]], []):
            yield row(f"virt.network_{name}", "n1", setup=setup)
    for value in ("on", "off", True, False, "nosuch"):
        yield row("virt.network_set_autostart", "n1", value, setup=[["network", THERE, False]])
    for name in ("network_defined", "network_running"):
        for setup in ([], [["network", THERE, False]], [["network", THERE]]):
            for test in (False, True):
                for more in ({}, {"autostart": False}, {"mtu": 9000}, {"nat": {"port":
                             {"start": 500, "end": 1000}}}):  # fmt: skip
                    yield row(f"state:virt.{name}", "n1", setup=setup, __test__=test, **NAT, **more)


POOL_UUID = "<uuid>d5ce0f52-6f0f-4b0f-b4a1-0ef5a9f0a0c2</uuid>"


def pools():  # noqa: PLR0912 - a table
    """Pools that are made and changed, and their volumes."""
    for ptype, asked in cases.POOLS.values():
        for start in (False, True):
            yield row("virt.pool_define", "p1", ptype, start=start, **asked)
        there = [["pool", f"<pool type='{ptype}'><name>p1</name>{POOL_UUID}{_source(ptype)}"
                          "<target><path>/p1</path></target></pool>", False]]  # fmt: skip
        for test in (False, True):
            yield row("virt.pool_update", "p1", ptype, test=test, setup=there, **asked)
        yield row("virt.pool_update", "nosuch", ptype, setup=there, **asked)
    dir_pool = (
        f"<pool type='dir'><name>p1</name>{POOL_UUID}"
        f"<target><path>{FOLDER}/data/p1</path></target></pool>"
    )
    for more in ({"permissions": {"mode": "0770", "owner": 1000, "group": 100}}, {"target": "/x"},
                 {"transient": True}, {"autostart": False}, {"permissions": {"mode": "0775"}},
                 {"target": None}, {"target": "relative"}, {"autostart": True}):  # fmt: skip
        yield row("virt.pool_define", "p1", "dir", **{"target": f"{FOLDER}/data/p1", **more})
    for function in ("start", "build", "stop", "undefine", "delete", "refresh", "list_volumes"):
        for setup in ([["pool", dir_pool, False]], [["pool", dir_pool]], []):
            yield row(f"virt.pool_{function}", "p1", setup=setup)
    for value in ("on", "off", True, False, "nosuch"):
        yield row("virt.pool_set_autostart", "p1", value, setup=[["pool", dir_pool, False]])
    for name in ("pool_defined", "pool_running"):
        for setup in ([], [["pool", dir_pool, False]], [["pool", dir_pool]]):
            for test in (False, True):
                for more in ({}, {"autostart": False}, {"permissions": {"mode": "0770"}}):
                    yield row(f"state:virt.{name}", "p1", "dir", target=f"{FOLDER}/data/p1",
                              setup=setup, __test__=test, **more)  # fmt: skip
    for setup in ([], [["pool", dir_pool, False]], [["pool", dir_pool]]):
        for more in ({}, {"purge": True}, {"__test__": True}):
            yield row("state:virt.pool_deleted", "p1", setup=setup, **more)
    yield from volumes()


def _source(ptype):
    """What libvirt demands of a pool of a type."""
    inner = "<name>s</name><host name='h'/><dir path='/d'/><device path='/dev/sdz'/>"
    if ptype == "scsi":
        inner = "<adapter type='scsi_host' name='scsi_host0'/>"
    if ptype == "iscsi-direct":
        inner += "<initiator><iqn name='iqn.2013-06.com.example:a'/></initiator>"
    return "" if ptype == "dir" else f"<source>{inner}</source>"


def volumes():
    """Volumes in a pool of files on a libvirtd."""
    for more in (
        {"size": 8}, {"size": "8m"}, {"size": 8, "allocation": 4}, {"size": 8, "format": "qcow2"},
        {"size": 8, "format": "raw"}, {"size": 8, "type": "file"}, {"size": 8, "nocow": True},
        {"size": 8, "permissions": {"mode": "0640", "owner": 0, "group": 0}}, {"size": 0},
        {"size": 8, "format": "qcow2", "backing_store":
            {"path": f"{FOLDER}/data/base.raw", "format": "raw"}}, {"size": "nosuch"},
    ):  # fmt: skip
        yield row("virt.volume_define", "store", "v1", host="daemon", setup=STORE, **more)
        for test in (False, True):
            yield row("state:virt.volume_defined", "store", "v1", host="daemon", setup=STORE,
                      __test__=test, **more)  # fmt: skip
    for function in ("volume_infos", "volume_delete"):
        for args in (["store", "there"], ["store", "nosuch"], ["nosuch", "there"]):
            yield row(f"virt.{function}", *args, host="daemon", setup=STORE)
    for more in ({}, {"pool": "store"}, {"pool": "nosuch"}, {"volume": "there"}):
        yield row("virt.volume_infos", host="daemon", setup=STORE, **more)
    for more in ({}, {"offset": 1048576}, {"length": 1048576}, {"sparse": True}):
        yield row("virt.volume_upload", "store", "there", f"{FOLDER}/data/base.raw",
                  host="daemon", setup=STORE, **more)  # fmt: skip
    yield row("virt.volume_upload", "store", "there", "/nosuch", host="daemon", setup=STORE)
    for name in ("pool_list_volumes", "pool_info", "pool_refresh"):
        yield row(f"virt.{name}", "store", host="daemon", setup=STORE)


def table():
    """All rows; the id of a row is its function and its number among the rows of it."""
    found, count = [], {}
    for group in (reads, lives, definitions, inits, updates, networks, pools):
        for made in group():
            number = count[made["function"]] = count.get(made["function"], 0) + 1
            found.append({"id": f"{made['function']} {number}", **made})
    return found
