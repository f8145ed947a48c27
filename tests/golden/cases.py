"""What is asked for in the golden files: the documented parameters, each at least once."""

NETWORKS = {
    "nat": {
        "forward": "nat",
        "bridge": "virbr9",
        "stp": False,
        "delay": 2,
        "ipv4_config": {
            "cidr": "192.168.124.0/24",
            "dhcp_ranges": [
                {"start": "192.168.124.10", "end": "192.168.124.20"},
                {"start": "192.168.124.30", "end": "192.168.124.40", "lease": 7200},
            ],
            "hosts": [{"ip": "192.168.124.5", "mac": "52:54:00:00:00:01", "name": "a"}],
            "bootp": {"file": "pxelinux.0", "server": "10.0.0.1"},
            "tftp": "/srv/tftp",
        },
        "ipv6_config": {
            "cidr": "2001:db8:ca2:2::1/64",
            "hosts": [{"ip": "2001:db8:ca2:2::3", "id": "0:1:0:1:18:aa:62:fe:0:16:3e:44:55:66"}],
        },
        "nat": {
            "address": {"start": "1.2.3.4", "end": "1.2.3.10"},
            "port": {"start": 500, "end": 1000},
        },
        "mtu": 9000,
        "domain": {"name": "lab.acme.org", "localOnly": True},
        "dns": {
            "enable": True,
            "forwarders": [
                {"domain": "example.com", "addr": "192.168.1.1"},
                {"addr": "8.8.8.8"},
                {"domain": "www.example.com"},
            ],
            "txt": {"example.com": "v=spf1 a -all", "_http.tcp.example.com": "name=value,paper=A4"},
            "hosts": {"192.168.1.2": ["mirror.acme.lab", "test.acme.lab"]},
            "srvs": [
                {
                    "name": "ldap",
                    "protocol": "tcp",
                    "domain": "ldapserver.example.com",
                    "target": ".",
                    "port": 389,
                    "priority": 1,
                    "weight": 10,
                }
            ],
        },
        "bandwidth": {
            "inbound": {"average": 1000, "peak": 5000, "burst": 5120},
            "outbound": {"average": 128, "peak": 256, "burst": 256},
        },
    },
    "nat-simple": {
        "forward": "nat",
        "dev": "eth0",
        "nat": {"ipv6": True},
        "ipv4_config": {"cidr": "10.9.0.0/24"},
        "ipv6_config": {"cidr": "fd00:9::/64"},
    },
    "route": {
        "forward": "router",
        "ipv4_config": {"address": "10.1.0.1", "netmask": "255.255.255.0"},
    },
    "isolated": {"ipv4_config": {"address": "10.2.0.1", "prefix": 24}, "isolated_ports": True},
    "open": {"forward": "open", "ipv4_config": {"cidr": "10.3.0.1/24"}},
    "bridge": {"forward": "bridge", "bridge": "br0"},
    "ovs": {
        "forward": "bridge",
        "bridge": "ovsbr",
        "vport": {
            "type": "openvswitch",
            "parameters": {"interfaceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"},
        },
        "tag": {"trunk": True, "tags": [{"id": 42, "nativeMode": "untagged"}, {"id": 47}]},
        "portgroups": [
            {
                "name": "accounting",
                "default": True,
                "vlan": 5,
                "virtualport": {"type": "openvswitch", "parameters": {"profileid": "acc"}},
                "bandwidth": {"inbound": {"average": 1000}},
            }
        ],
    },
    "macvtap-bridge": {"forward": "bridge", "interfaces": "eth0"},
    "private": {"forward": "private", "interfaces": "eth10 eth11"},
    "vepa": {
        "forward": "vepa",
        "interfaces": ["eth10"],
        "vport": {
            "type": "802.1Qbg",
            "parameters": {
                "managerid": "11",
                "typeid": "1193047",
                "typeidversion": "2",
                "instanceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f",
            },
        },
    },
    "passthrough": {"forward": "passthrough", "interfaces": "eth10 eth11 eth12"},
    "passthrough-pf": {"forward": "passthrough", "physical_function": "eth0"},
    "hostdev": {"forward": "hostdev", "addresses": "0000:04:00.1 0000:e3:01.2"},
    "hostdev-pf": {"forward": "hostdev", "physical_function": "eth0", "tag": 5},
}

_TARGET = "iqn.2013-06.com.example:iscsi"
POOLS = {
    "dir": (
        "dir",
        {"target": "/srv/pool", "permissions": {"mode": "0770", "owner": 107, "group": 107}},
    ),
    "fs": ("fs", {"target": "/mnt/y", "source_devices": ["/dev/sdb1"], "source_format": "ext4"}),
    "nfs": ("netfs", {"target": "/mnt/z", "source_hosts": ["nas"], "source_dir": "/export"}),
    "cifs": (
        "netfs",
        {
            "target": "/mnt/cifs",
            "source_format": "cifs",
            "source_dir": "samba_share",
            "source_hosts": ["example.com"],
            "permissions": {"label": "system_u:object_r:virt_image_t:s0"},
        },
    ),
    "logical": (
        "logical",
        {"source_name": "vg0", "source_devices": [{"path": "/dev/sda"}], "source_format": "lvm2"},
    ),
    "disk": (
        "disk",
        {
            "source_devices": [{"path": "/dev/sdc", "part_separator": True}],
            "source_format": "gpt",
        },
    ),
    "iscsi": (
        "iscsi",
        {
            "source_hosts": ["iscsi.example.com:3260"],
            "source_devices": [_TARGET],
            "source_auth": {"username": "u", "secret": {"type": "usage", "value": "mycluster_u"}},
        },
    ),
    "iscsi-direct": (
        "iscsi-direct",
        {
            "source_hosts": ["iscsi.example.com"],
            "source_devices": [_TARGET],
            "source_initiator": "iqn.2013-06.com.example:iscsi-initiator",
        },
    ),
    "scsi": ("scsi", {"source_adapter": {"type": "scsi_host", "name": "scsi_host1"}}),
    "fc": (
        "scsi",
        {
            "source_adapter": {
                "type": "fc_host",
                "parent": "scsi_host5",
                "managed": True,
                "wwnn": "20000000c9831b4b",
                "wwpn": "10000000c9831b4b",
            }
        },
    ),
    "fc-parent": (
        "scsi",
        {
            "source_adapter": {
                "type": "fc_host",
                "parent_wwnn": "20000000c9831b4a",
                "parent_wwpn": "10000000c9831b4a",
                "wwnn": "20000000c9831b4b",
                "wwpn": "10000000c9831b4b",
            }
        },
    ),
    "fc-fabric": (
        "scsi",
        {
            "source_adapter": {
                "type": "fc_host",
                "parent_fabric_wwn": "20000000c9831b4c",
                "wwnn": "20000000c9831b4b",
                "wwpn": "10000000c9831b4b",
            }
        },
    ),
    "scsi-parent": (
        "scsi",
        {
            "source_adapter": {
                "type": "scsi_host",
                "parent_address": {
                    "unique_id": 5,
                    "address": {"domain": "0x0", "bus": "0x1f", "slot": "0x2", "function": "0x1"},
                },
            }
        },
    ),
    "mpath": ("mpath", {}),
    "rbd": (
        "rbd",
        {
            "source_name": "rbdpool",
            "source_hosts": ["mon1:6789", "mon2"],
            "source_auth": {"username": "admin", "password": "c2VjcmV0"},
        },
    ),
    "gluster": (
        "gluster",
        {"source_name": "vol1", "source_hosts": ["gluster.example.com"], "source_dir": "/d"},
    ),
    "zfs": ("zfs", {"source_name": "tank", "source_devices": ["/dev/sdd"]}),
    "sheepdog": ("sheepdog", {"source_name": "s", "source_hosts": ["localhost:7000"]}),
}

# what Salt 3007 cannot express
POOLS_OF_OURS = {
    "nfs-options": (
        "netfs",
        {
            "target": "/mnt/o",
            "source_hosts": ["nas"],
            "source_dir": "/export",
            "source_format": "nfs",
            "source_protocol_ver": "4.2",
            "source_mount_opts": ["noatime", "nconnect=4"],
        },
    ),
}

VOLUMES = {
    "plain": {"size": 8192},
    "qcow2": {
        "size": "8G",
        "allocation": 1024,
        "format": "qcow2",
        "type": "file",
        "permissions": {"mode": "0775", "owner": "123", "group": "345"},
        "backing_store": {"path": "/path/to/base.img", "format": "raw"},
        "nocow": True,
    },
}
SECRET = "2ec115d7-3a88-3ceb-bc12-0ac909a6fd87"

_CPU = {
    "placement": "static",
    "cpuset": "0-11",
    "current": 5,
    "maximum": 12,
    "vcpus": {
        0: {"enabled": True, "hotpluggable": False, "order": 1},
        1: {"enabled": False, "hotpluggable": True},
    },
    "match": "minimum",
    "mode": "custom",
    "check": "full",
    "vendor": "Intel",
    "model": {"name": "core2duo", "fallback": "allow", "vendor_id": "GenuineIntel"},
    "topology": {"sockets": 1, "dies": 1, "cores": 12, "threads": 1},
    "cache": {"level": 3, "mode": "emulate"},
    "features": {"lahf": "optional", "pcid": "require"},
    "numa": {
        0: {
            "cpus": "0-3",
            "memory": "1g",
            "discard": True,
            "distances": {0: 10, 1: 21},
        },
        1: {
            "cpus": "4-11",
            "memory": "1g",
            "memAccess": "shared",
            "distances": {0: 21, 1: 10},
        },
    },
    "tuning": {
        "vcpupin": {0: "1-4,^2", 1: "0,1", 2: "2,3", 3: "0,4"},
        "emulatorpin": "1-3",
        "iothreadpin": {1: "5,6", 2: "7,8"},
        "shares": 2048,
        "period": 1000000,
        "quota": -1,
        "global_period": 1000000,
        "global_quota": -1,
        "emulator_period": 1000000,
        "emulator_quota": -1,
        "iothread_period": 1000000,
        "iothread_quota": -1,
        "vcpusched": [
            {"scheduler": "fifo", "priority": 1, "vcpus": "0,3-5"},
            {"scheduler": "rr", "priority": 3, "vcpus": "1"},
        ],
        "iothreadsched": [
            {"scheduler": "idle", "iothreads": "1"},
            {"scheduler": "batch", "iothreads": "2,3"},
        ],
        "emulatorsched": [{"scheduler": "rr", "priority": 2}],
        "cachetune": {
            "0-3": {
                0: {"level": 3, "type": "both", "size": 4, "unit": "MiB"},
                1: {"level": 3, "type": "both", "size": 6, "unit": "MiB"},
                "monitor": {"1": 3, "0-3": 3},
            },
            "4-5": {"monitor": {"4": 3, "5": 3}},
        },
        "memorytune": {"0-3": {0: 60}, "4-5": {0: 60}},
    },
    "iothreads": 4,
}
_SYSTEM = {"name": "system"}
_ISCSI = {
    "name": "lun0",
    "device": "lun",
    "model": "scsi",
    "source": {
        "protocol": "iscsi",
        "name": f"{_TARGET}/1",
        "hosts": ["iscsi.example.com:3260"],
        "initiator": "iqn.2013-06.com.example:iscsi-initiator",
        "auth": {"username": "u", "usage": "libvirtiscsi"},
    },
}

# name -> (capabilities, domain capabilities, arguments); sources beyond the system disk
# come from SOURCES
DOMAINS = {
    "cpu-all": ("qemu", "qemu-kvm-domain", {"cpu": _CPU, "mem": "2g"}),
    "cpu-host": (
        "qemu",
        "qemu-kvm-domain",
        {"cpu": {"maximum": 2, "mode": "host-passthrough", "migratable": False}},
    ),
    "memory-all": (
        "qemu",
        "qemu-kvm-domain",
        {
            "cpu": {"maximum": 2, "numa": {0: {"cpus": "0-1", "memory": "1g"}}},
            "mem": {
                "boot": "1g",
                "current": "1g",
                "max": "2g",
                "slots": 10,
                "hard_limit": "4096",
                "soft_limit": "512m",
                "swap_hard_limit": "5g",
                "hugepages": [{"nodeset": "0", "size": "2m"}],
                "nosharepages": True,
                "locked": True,
                "source": "file",
                "access": "shared",
                "allocation": "immediate",
                "discard": True,
            },
            "numatune": {
                "memory": {"mode": "strict", "nodeset": "0"},
                "memnodes": {0: {"mode": "strict", "nodeset": 0}},
            },
        },
    ),
    "numatune-auto": (
        "qemu",
        "qemu-kvm-domain",
        {
            "cpu": {"maximum": 2, "placement": "auto"},
            "numatune": {"memory": {"mode": "preferred", "placement": "auto"}},
            "mem": {"boot": 1024, "hugepages": True},
        },
    ),
    "boot-kernel": (
        "qemu",
        "qemu-kvm-domain",
        {
            "boot": {
                "kernel": "/root/f8-i386-vmlinuz",
                "initrd": "/root/f8-i386-initrd",
                "cmdline": "console=ttyS0 ks=http://example.com/f8-i386/os/",
            },
            "boot_dev": "network hd",
        },
    ),
    "boot-loader": (
        "qemu",
        "qemu-kvm-domain",
        {
            "boot": {
                "loader": "/usr/share/OVMF/OVMF_CODE.fd",
                "nvram": "/usr/share/OVMF/OVMF_VARS.ms.fd",
            },
            "machine": "q35",
        },
    ),
    "boot-efi": ("qemu", "qemu-kvm-domain", {"boot": {"efi": True}, "boot_dev": ["cdrom", "hd"]}),
    "features": (
        "qemu",
        "qemu-kvm-domain",
        {
            "hypervisor_features": {
                "kvm-hint-dedicated": True,
                "kvm_poll_control": True,
                "pae": True,
                "pmu": False,
                "vmport": False,
                "smm": True,
                "pvspinlock": True,
                "vmcoreinfo": True,
                "ioapic": "kvm",
                "hyperv-relaxed": True,
                "hyperv-vapic": True,
                "hyperv-spinlocks-retries": 8191,
                "hyperv-vpindex": True,
                "hyperv-synic": True,
                "hyperv-stimer": True,
                "hyperv-reset": True,
                "hyperv-vendor-id": "KVMGuest",
            },
            "kvm_hidden": True,
            "machine": "q35",
        },
    ),
    "inputs": ("qemu", "qemu-kvm-domain", {"graphics": "vnc", "inputs": [
        "tablet", {"type": "keyboard", "bus": "virtio"},
        {"type": "evdev", "source": "/dev/input/event3", "grab": True, "repeat": True},
    ]}),
    "features-hyperv": (
        "qemu",
        "qemu-kvm-domain",
        {
            "hypervisor_features": {
                "hyperv-runtime": True,
                "hyperv-frequencies": True,
                "hyperv-reenlightenment": True,
                "hyperv-tlbflush": True,
                "hyperv-ipi": True,
                "hyperv-evmcs": True,
                "hyperv-avic": True,
            }
        },
    ),
    "clock-local": ("qemu", "qemu-kvm-domain", {"clock": {"adjustment": 3600, "utc": False}}),
    "clock-zone": ("qemu", "qemu-kvm-domain", {"clock": {"timezone": "CEST"}}),
    "clock-timers": (
        "qemu",
        "qemu-kvm-domain",
        {
            "clock": {
                "timers": {
                    "tsc": {"frequency": 3504000000, "mode": "native"},
                    "rtc": {
                        "track": "wall",
                        "tickpolicy": "catchup",
                        "slew": 4636,
                        "threshold": 123,
                        "limit": 2342,
                    },
                    "hpet": {"present": False},
                }
            }
        },
    ),
    "disks": (
        "qemu",
        "qemu-kvm-domain",
        {
            "cpu": {"maximum": 2, "iothreads": 2},
            "disks": [
                {**_SYSTEM, "boot_order": 1},
                {"name": "data", "size": "10g", "cache": "none", "io": "native",
                 "iothread_id": 2, "queues": 4, "serial": "DATA01"},
                {"name": "lv", "source_file": "/dev/vg0/lv", "detect_zeroes": "unmap",
                 "discard": "unmap", "shareable": True},
                {"name": "vol", "pool": "tank", "source_file": "vol1", "format": "raw",
                 "model": "scsi", "wwn": "5000c50015ea71aa", "read_only": True},
                {"name": "cd", "device": "cdrom", "source_file": "/iso/install.iso"},
                {"name": "empty", "device": "cdrom", "source_file": None, "model": "sata"},
                {"name": "fd", "device": "floppy", "source_file": "/img/fd.img"},
            ],
        },
    ),
    "disks-network": (
        "qemu",
        "qemu-kvm-domain",
        {
            "disks": [
                _SYSTEM,
                {"name": "ceph", "source": {
                    "protocol": "rbd", "name": "pool/image", "snapshot": "snap1",
                    "config_file": "/etc/ceph/ceph.conf", "hosts": ["mon1:6789", "mon2"],
                    "auth": {"username": "admin", "uuid": SECRET},
                }},
                {"name": "gluster", "source": {
                    "protocol": "gluster", "name": "vol1/img.qcow2",
                    "hosts": [{"name": "g1", "port": 24007, "transport": "tcp"},
                              {"transport": "unix", "socket": "/run/g.sock"}],
                }, "format": "qcow2"},
                {"name": "nbd", "source": {
                    "protocol": "nbd", "hosts": ["nbd.example.com:10809"], "name": "export",
                    "tls": True,
                }},
                _ISCSI,
                {"name": "web", "device": "cdrom",
                 "source_file": "https://dl.example.com/a/b.iso?key=1"},
                {"name": "ftp", "device": "cdrom", "model": "sata",
                 "source_file": "ftp://dl.example.com:2121/c.iso"},
            ],
        },
    ),
    "nics": (
        "qemu",
        "qemu-kvm-domain",
        {
            "interfaces": [
                {"name": "eth0", "mac": "52:54:00:AA:BB:01", "mtu": 9000, "queues": 4},
                {"name": "eth1", "network": "lan", "portgroup": "accounting", "model": "e1000",
                 "link": False, "filter": "clean-traffic"},
                {"name": "eth2", "type": "direct", "source": "eth0", "mode": "vepa",
                 "target": "tap7"},
                {"name": "eth3", "type": "bridge", "source": "ovsbr", "virtualport": {
                    "type": "openvswitch",
                    "parameters": {"interfaceid": "09b11c53-8b5c-4eeb-8f00-d84eaa0aaa4f"},
                }, "vlan": {"trunk": True, "tags": [{"id": 42, "nativeMode": "untagged"},
                                                    {"id": 47}]}},
                {"name": "eth4", "bandwidth": {
                    "inbound": {"average": 1000, "peak": 5000, "burst": 1024},
                    "outbound": {"average": 128, "peak": 256, "burst": 256},
                }},
                {"name": "eth5", "type": "user"},
                {"name": "eth6", "network": "lan", "bandwidth": {"inbound": {"floor": 200}}},
            ],
        },
    ),
    "vnc": (
        "qemu",
        "qemu-kvm-domain",
        {
            "graphics": {
                "type": "vnc",
                "port": 5907,
                "websocket": 5708,
                "listen": {"type": "address", "address": "192.168.0.125"},
                "password": "hush",
                "keymap": "de",
            }
        },
    ),
    "spice": (
        "qemu",
        "qemu-kvm-domain",
        {"graphics": {"type": "spice", "port": 5930, "tls_port": 5931}},
    ),
    "spice-network": (
        "qemu",
        "qemu-kvm-domain",
        {"graphics": {"type": "spice", "listen": {"type": "network", "network": "default"}}},
    ),
    "vnc-socket": (
        "qemu",
        "qemu-kvm-domain",
        {"graphics": {"type": "vnc", "listen": {"type": "socket", "socket": "/run/v.sock"}}},
    ),
    "chardevs": (
        "qemu",
        "qemu-kvm-domain",
        {
            "serials": [
                {"type": "tcp", "host": "127.0.0.1", "port": 2222, "protocol": "telnet",
                 "tls": False, "target_port": 0, "target_type": "isa-serial",
                 "log_file": "/var/log/guest.log"},
                {"type": "udp", "host": "10.0.0.1", "port": 2223},
                {"type": "unix", "path": "/run/serial.sock"},
                {"type": "file", "path": "/var/log/serial.log"},
            ],
            "consoles": [{"type": "pty", "target_type": "virtio"}],
        },
    ),
    "host-devices": (
        "qemu",
        "qemu-kvm-domain",
        {
            "host_devices": [
                "pci_0000_03_00_0",
                "046d:c52b",
                "usb_1_1_2",
                {"type": "pci", "bus": "0x04", "slot": "0x00", "function": "0x1",
                 "rom_file": "/fw/rom.bin"},
                {"type": "mdev", "uuid": SECRET},
            ]
        },
    ),
    "devices": (
        "qemu",
        "qemu-kvm-domain",
        {
            "tpm": {"model": "tpm-crb", "type": "emulator", "version": "2.0",
                    "persistent_state": True},
            "rng": {"model": "virtio", "source": "/dev/random", "rate": 1234, "period": 2000},
            "watchdog": {"model": "i6300esb", "action": "poweroff"},
            "memballoon": {"model": "virtio", "autodeflate": True, "free_page_reporting": True,
                           "period": 5},
            "on_poweroff": "destroy",
            "on_reboot": "restart",
            "on_crash": "coredump-restart",
            "title": "a guest",
            "description": "of many words",
            "metadata": {"owner": "me", "ticket": "4711"},
            "guest_agent": False,
        },
    ),
    "devices-none": (
        "qemu",
        "qemu-kvm-domain",
        {"rng": False, "memballoon": "none", "watchdog": "none", "stop_on_reboot": True,
         "tpm": {"type": "passthrough", "device": "/dev/tpm0", "model": "tpm-tis"}},
    ),
    "platform-devices": (
        "qemu",
        "qemu-kvm-domain",
        {"machine": "q35", "on_crash": "coredump-destroy", "panic": True, "sound": "ich9",
         "video": {"model": "qxl", "vram": "32m", "heads": 2}, "graphics": "vnc",
         "iommu": {"intremap": True, "caching_mode": True, "eim": False, "iotlb": True,
                   "aw_bits": 48},
         "vsock": {"cid": 7, "model": "virtio"}},
    ),
    "disks-limits": (
        "qemu",
        "qemu-kvm-domain",
        {
            "cpu": {"maximum": 2, "iothreads": 2},
            "scsi_controller": {"model": "virtio-scsi", "queues": 2, "iothread_id": 1},
            "disks": [
                {**_SYSTEM, "iotune": {"total_bytes_sec": "50m", "total_bytes_sec_max": "100m",
                            "total_bytes_sec_max_length": 10, "read_iops_sec": 500,
                            "read_iops_sec_max": 600, "read_iops_sec_max_length": 2,
                            "write_iops_sec": 300, "write_iops_sec_max": 400,
                            "write_iops_sec_max_length": 2, "size_iops_sec": 4096,
                            "group_name": "database"}},
                {"name": "lv", "source_file": "/dev/vg0/lv",
                 "iotune": {"read_bytes_sec": 1000, "read_bytes_sec_max": 2000,
                            "read_bytes_sec_max_length": 2, "write_bytes_sec": 1000,
                            "write_bytes_sec_max": 2000, "write_bytes_sec_max_length": 2,
                            "total_iops_sec": 10, "total_iops_sec_max": 20,
                            "total_iops_sec_max_length": 2}},
            ],
        },
    ),
    "devices-of-the-host": (
        "qemu",
        "qemu-kvm-domain",
        {
            "interfaces": [
                {"name": "eth0", "network": "lan", "isolated": True},
                {"name": "eth1", "hostdev": "0000:03:10.1", "vlan": 42},
            ],
            "host_devices": [
                "scsi_2_0_3_1",
                {"type": "scsi", "adapter": "scsi_host4", "bus": 0, "target": 0, "unit": 7},
            ],
        },
    ),
    "filesystems": (
        "qemu",
        "qemu-kvm-domain",
        {"filesystems": [
            {"source": "/srv/share", "target": "share", "cache": "always"},
            {"source": "/srv/old", "target": "old", "driver": "9p", "accessmode": "mapped",
             "read_only": True},
        ]},
    ),
    "sysinfo": (
        "qemu",
        "qemu-kvm-domain",
        {"sysinfo": {
            "bios": {"vendor": "Salt", "version": "1.0", "date": "11/29/2026", "release": "1.2"},
            "system": {"manufacturer": "Acme", "product": "Cloud", "version": "3",
                       "serial": "ds=nocloud;s=http://192.0.2.1/web1/", "sku": "A-1",
                       "family": "guests"},
            "baseboard": {"manufacturer": "Acme", "product": "Board", "version": "1",
                          "serial": "b1", "asset": "inventory 4712", "location": "rack 2"},
            "chassis": {"manufacturer": "Acme", "version": "1", "serial": "c1",
                        "asset": "inventory 4711", "sku": "A-2"},
            "oem_strings": ["first", "io.systemd.credential:a=b"],
            "fw_cfg": {"opt/org.example/role": "database"},
        }},
    ),
    "serial-type": ("qemu", "qemu-kvm-domain", {"serial_type": "pty", "enable_vnc": True}),
    "i686": ("qemu", None, {"arch": "i686"}),
    "aarch64": (
        "aarch64",
        "aarch64-domain",
        {"graphics": "vnc",
         "disks": [_SYSTEM, {"name": "cd", "device": "cdrom", "source_file": "/iso/a.iso"}]},
    ),
    "test": ("test", None, {"graphics": "vnc"}),
    "xen-hvm": (
        "xen",
        "xen-hvm-domain",
        {"graphics": "spice",
         "mem": {"boot": 1024, "min_guarantee": "512mib"},
         "disks": [_SYSTEM, {"name": "cd", "device": "cdrom", "source_file": "/iso/a.iso"}]},
    ),
    "xen-pv": ("xen", "xen-pv-domain", {"os_type": "xen", "graphics": "vnc"}),
    "xen-pv-kernel": (
        "xen",
        "xen-pv-domain",
        {"os_type": "xen", "boot": {"kernel": "/boot/vmlinuz", "initrd": "/boot/initrd"}},
    ),
    "lxc": ("lxc", None, {"disks": [_SYSTEM, {"name": "data", "source_file": "/dev/vg0/data"}]}),
}  # fmt: skip

USB_DEVICE = """<device>
  <name>usb_1_1_2</name>
  <parent>usb_1_1</parent>
  <driver><name>usb</name></driver>
  <capability type='usb_device'>
    <bus>1</bus>
    <device>5</device>
    <product id='0x3200'>Hard drive</product>
    <vendor id='0x1058'>Western Digital</vendor>
  </capability>
</device>"""
