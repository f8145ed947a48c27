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
