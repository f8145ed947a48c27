"""Capabilities as plain data, from the XML of machines that the lab does not have."""

from xml.etree import ElementTree

from saltvirt.host.capabilities import domain_caps, guest_caps, host_caps, pool_caps

HOST = """
<host><uuid>44</uuid>
  <cpu><arch>aarch64</arch><model>ferret</model>
    <topology sockets='1' dies='1' cores='4' threads='2'/>
    <feature name='asimd'/><pages unit='KiB' size='4'/><microcode version='7'/></cpu>
  <power_management><suspend_mem/></power_management>
  <migration_features><live/><uri_transports><uri_transport>tcp</uri_transport></uri_transports>
  </migration_features>
  <topology><cells num='1'><cell id='0'><memory unit='KiB'>12</memory>
    <pages unit='KiB' size='4'>3</pages><distances><sibling id='0' value='10'/></distances>
    <cpus num='1'><cpu id='0' socket_id='0' core_id='0' siblings='0'/></cpus>
  </cell></cells></topology>
  <cache><bank id='0' level='3' type='both' size='8' unit='MiB' cpus='0-7'>
    <control granularity='768' min='1536' unit='KiB' type='both' maxAllocs='4'/></bank></cache>
  <secmodel><model>dac</model><doi>0</doi><baselabel type='kvm'>+64055:+108</baselabel></secmodel>
</host>"""


def test_a_host():
    assert host_caps.parse(ElementTree.fromstring(HOST)) == {
        "uuid": "44",
        "cpu": {
            "arch": "aarch64", "model": "ferret", "vendor": None, "features": ["asimd"],
            "pages": [{"size": "4 KiB"}], "microcode": "7",
            "sockets": 1, "dies": 1, "cores": 4, "threads": 2,
        },
        "power_management": ["suspend_mem"],
        "migration": {"live": True, "transports": ["tcp"]},
        "topology": {"cells": [{
            "id": 0, "memory": "12 KiB", "pages": [{"size": "4 KiB", "available": 3}],
            "distances": {0: 10},
            "cpus": [{"id": 0, "socket_id": 0, "core_id": 0, "siblings": "0"}],
        }]},
        "cache": {"banks": [{
            "id": 0, "level": 3, "type": "both", "size": "8 MiB", "cpus": "0-7",
            "controls": [{"granularity": "768 KiB", "min": "1536 KiB", "type": "both",
                          "maxAllocs": 4}],
        }]},
        "security": [{"model": "dac", "doi": "0",
                      "baselabels": [{"type": "kvm", "label": "+64055:+108"}]}],
    }  # fmt: skip


def test_a_host_that_tells_nothing_of_itself():
    assert host_caps.parse(ElementTree.fromstring("<host/>")) == {"security": []}


def test_a_guest():
    text = """
    <guest><os_type>hvm</os_type><arch name='x86_64'><wordsize>64</wordsize>
      <emulator>/usr/bin/q</emulator>
      <machine maxCpus='255'>pc-7</machine><machine canonical='pc-7' maxCpus='255'>pc</machine>
      <domain type='qemu'/>
      <domain type='kvm'><emulator>/usr/bin/k</emulator><machine>m</machine></domain></arch>
      <features><acpi default='on' toggle='yes'/><pae/></features></guest>"""
    assert guest_caps.parse(ElementTree.fromstring(text)) == {
        "os_type": "hvm",
        "arch": {
            "name": "x86_64", "wordsize": 64, "emulator": "/usr/bin/q",
            "machines": {"pc-7": {"alternate_names": ["pc"], "maxcpus": 255}},
            "domains": {
                "qemu": {"emulator": None, "machines": {}},
                "kvm": {"emulator": "/usr/bin/k", "machines": {"m": {"alternate_names": []}}},
            },
        },
        "features": {"acpi": {"toggle": True, "default": True},
                     "pae": {"toggle": False, "default": True}},
    }  # fmt: skip


def test_a_domain():
    text = """
    <domainCapabilities><path>/usr/bin/q</path><domain>kvm</domain><machine>virt</machine>
      <arch>aarch64</arch><vcpu max='512'/><iothreads supported='yes'/>
      <os supported='yes'><enum name='firmware'><value>efi</value></enum>
        <loader supported='yes'><value>/fw</value><enum name='type'><value>pflash</value></enum>
        </loader></os>
      <cpu><mode name='host-passthrough' supported='yes'/>
        <mode name='host-model' supported='yes'><model fallback='allow'>ferret</model>
          <vendor>Acme</vendor><feature policy='require' name='x'/></mode>
        <mode name='custom' supported='yes'><model usable='no'>a</model></mode>
        <mode name='maximum' supported='no'/></cpu>
      <devices><disk supported='yes'><enum name='bus'><value>virtio</value></enum></disk>
        <tpm supported='no'/></devices>
      <features><gic supported='no'/></features></domainCapabilities>"""
    assert domain_caps.parse(ElementTree.fromstring(text)) == {
        "emulator": "/usr/bin/q", "domain": "kvm", "machine": "virt", "arch": "aarch64",
        "max_vcpus": 512, "iothreads": True,
        "os": {"firmware": ["efi"], "loader": {"type": ["pflash"], "values": ["/fw"]}},
        "cpu": {
            "host-passthrough": True,
            "host-model": {"model": {"name": "ferret", "fallback": "allow"}, "vendor": "Acme",
                           "features": {"x": "require"}},
            "custom": {"models": {"a": "no"}},
        },
        "devices": {"disk": {"bus": ["virtio"]}},
    }  # fmt: skip


def test_pools():
    text = """
    <storagepoolCapabilities>
      <pool type='dir' supported='yes'><volOptions><defaultFormat type='raw'/>
        <enum name='targetFormatType'><value>raw</value></enum></volOptions></pool>
      <pool type='rbd' supported='no'><volOptions/></pool>
    </storagepoolCapabilities>"""
    assert pool_caps.parse(text) == [
        {"name": "dir", "supported": True,
         "options": {"volume": {"default_format": "raw", "targetFormatType": ["raw"]}}},
        {"name": "rbd", "supported": False},
    ]  # fmt: skip
