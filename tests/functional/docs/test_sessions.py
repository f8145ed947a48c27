"""The sessions of a manual, typed on a master with one host: each command ends as the manual says,
and prints what the manual shows."""

import re
import subprocess
import textwrap
from pathlib import Path

import pytest

libvirt = pytest.importorskip("libvirt")
pytest.importorskip("salt")

import salt.loader

from tests.functional.daemon import libvirtd, running  # noqa: F401
from tests.functional.docs import test_manuals
from tests.functional.docs.terminal import MIB, Terminal
from tests.functional.docs.test_commands import rows
from tests.lab import paths, process
from tests.tools import api, typed_manual


def clear(uri):
    """Remove the guests, pools and networks of a host."""
    conn = libvirt.open(uri)
    for dom in conn.listAllDomains():
        if dom.isActive():
            dom.destroy()
        for snapshot in dom.listAllSnapshots():
            snapshot.delete(libvirt.VIR_DOMAIN_SNAPSHOT_DELETE_METADATA_ONLY)
        dom.undefineFlags(libvirt.VIR_DOMAIN_UNDEFINE_NVRAM | libvirt.VIR_DOMAIN_UNDEFINE_TPM)
    for one in [*conn.listAllNetworks(), *conn.listAllStoragePools()]:
        is_persistent = one.isPersistent()
        if one.isActive():
            one.destroy()
        if is_persistent:
            one.undefine()
    conn.close()


@pytest.fixture
def terminal(libvirtd, tmp_path, monkeypatch):  # noqa: F811
    yield Terminal({"hv1": libvirtd.uri}, tmp_path, monkeypatch)
    clear(libvirtd.uri)


@pytest.fixture(scope="module")
def second():
    """The libvirtd of another host."""
    with running() as daemon:
        yield daemon


@pytest.fixture
def terminals(libvirtd, second, monkeypatch):  # noqa: F811
    """A terminal of a master with two hosts, hv1 and hv2. Its paths are as short as those of the
    manuals, so that a line is folded at the same place."""
    uris = {"hv1": libvirtd.uri, "hv2": second.uri}
    with process.folder("") as folder:
        yield Terminal(uris, Path(folder), monkeypatch)
        for uri in uris.values():
            clear(uri)


def replaced(text, instead):
    for said, here in instead.items():
        text = text.replace(said, here)
    return text


def follow(terminal, page, instead, without=None):
    """Type the sessions of a page, and write its files. instead: {text of the page: what it is
    here}. without: the title of the section at which it ends."""
    text, typed = paths.page(page).read_text(encoding="utf-8"), 0
    text = text.partition(f"\n## {without}\n")[0] if without else text
    root = terminal.root
    instead = {
        **instead,
        "hyper1": "hv1",
        "hyper2": "hv2",
        "hyper*": "hv*",
        "/srv/salt-images": f"{root}/srv",
    }
    text = replaced(text, instead)
    for block in typed_manual.BLOCK.finditer(typed_manual.joined(text)):
        if block["kind"] == "yaml":
            terminal.write(textwrap.dedent(block["text"]))
        typed += _type(terminal, typed_manual.session(block))
    return typed


def _type(terminal, session):
    """Type the commands of a session, and return how many."""
    for number, (command, lines) in enumerate(session.steps, 1):
        if session.skipped:
            return 0
        code, printed = terminal.type(command)
        # another host has its images in a folder of its own
        printed = printed.replace(f"{terminal.root}/hv2/", f"{terminal.root}/")
        fails = session.fails and number == len(session.steps)
        assert code == int(fails), f"{command}\n{printed}"
        wrong = typed_manual.mismatch(lines, printed, session.varies)
        assert wrong is None, f"{command}\nnot printed: {wrong}\nprinted:\n{printed}"
    return len(session.steps)


def created(terminal, name="web1", **given):
    """A guest that runs, without a system of its own."""
    given = {"cpu": 1, "mem": "64MiB", "size": "20MiB", **given}
    words = " ".join(f"{key}={value}" for key, value in given.items())
    code, printed = terminal.type(
        f"salt-run virt.init {name} image=salt://debian.qcow2 seed=False {words}"
    )
    assert code == 0, printed


# a guest without a system uses little memory and disk, and hears no power button
SMALL = {
    "2 GiB": "64 MiB", "4 GiB": "128 MiB", "4GiB": "128MiB", "2GiB": "64MiB", "3GiB": "96MiB",
    "20 GiB": "20 MiB", "40 GiB": "40 MiB", "40GiB": "40MiB",
    "virt.shutdown web1": "virt.force_off web1", "2 now, then 4": "1 now, then 2",
    "cpu=4": "cpu=2", "{maximum: 8, current: 2}": "{maximum: 2, current: 1}",
    "{maximum: 4, current: 2}": "{maximum: 2, current: 1}",
    "{current: 4}": "{current: 2}",
}  # fmt: skip
CACHED = "/srv/salt-images/_base/debian-0123456789abcdef.iso"
OFF, ON = "# salt-run virt.force_off web1\n…\n", "# salt-run virt.start web1\n…\n"


def test_resize(terminal):
    terminal.image()
    created(terminal)
    assert follow(terminal, "resize.md", SMALL) == 11


def discs(terminal, *names):
    """Media on the host and the master, with nothing on them; {their path in the manuals: here}"""
    (terminal.root / "salt/iso").mkdir(exist_ok=True)
    for name in ("debian", "windows", "virtio-win"):
        (terminal.root / f"salt/iso/{name}.iso").write_bytes(bytes(2 * MIB))
    for name in names:
        (terminal.root / f"{name}.iso").write_bytes(bytes(2 * MIB))
    return {f"/srv/iso/{name}.iso": f"{terminal.root}/{name}.iso" for name in names}


def test_iso(terminal):
    here = discs(terminal, "debian")
    assert follow(terminal, "iso.md", {**here, "2GiB": "64MiB", "20GiB": "20MiB"}) == 10


def test_windows(terminal):
    """Without the start: QEMU alone has no secure boot on every machine."""
    here = {**discs(terminal, "win", "virtio"), "8GiB": "256MiB", "64GiB": "64MiB"}
    here |= {"virt.init win1 4": "virt.init win1 2", "virt.start win1": "virt.vm_info win1\n…"}
    assert follow(terminal, "windows.md", here) == 7


def test_guests(terminal, libvirtd):  # noqa: F811
    """The guest has no system that could reboot, or release a disk: it is off for that."""
    terminal.image()
    here = discs(terminal, "debian")
    pool, archive = terminal.root / "ssd", terminal.root / "archive.qcow2"
    pool.mkdir()
    conn = libvirt.open(libvirtd.uri)
    conn.networkCreateXML("<network><name>lan</name></network>")
    conn.storagePoolCreateXML(
        f"<pool type='dir'><name>ssd</name><target><path>{pool}</path></target></pool>"
    )
    terminal.modules["virt.volume_define"]("ssd", "web1_old", 8, format="qcow2")
    subprocess.run(["qemu-img", "create", "-q", "-f", "qcow2", archive, "8M"], check=True)
    try:
        created(terminal, mem="128MiB")
        followed = follow(
            terminal,
            "guests.md",
            {
                **SMALL,
                "8 GiB": "192 MiB",
                "8GiB": "192MiB",
                "salt://debian.iso": here["/srv/iso/debian.iso"],
                "/srv/disks/archive.qcow2": str(archive),
                "bridge=br0": "network=lan",
                "# salt-run virt.detach web1 data": f"{OFF}# salt-run virt.detach web1 data",
                "# salt-run virt.attach web1 iso=": f"{ON}# salt-run virt.attach web1 iso=",
                # the firmware may still read it
                f"web1 on hv1 was changed: disk hda: {CACHED} -> none": "…",
                "next start: boot devices\n": "next start: boot devices…\n",
                "virt.reboot": "virt.reset",
                "was rebooted": "was reset",
            },
        )
        assert followed == 24
    finally:
        conn.networkLookupByName("lan").destroy()
        conn.storagePoolLookupByName("ssd").destroy()
        conn.close()


def test_from_proxmox(terminal):
    for name in ("system", "data"):
        terminal.image(f"web1-{name}.qcow2")
    here = {"2GiB": "64MiB", "/srv/import/": f"{terminal.root}/salt/",
            "bridge: br0": "type: user"}  # fmt: skip
    assert follow(terminal, "from-proxmox.md", here) == 4


def test_rights(terminal):
    terminal.image()
    created(terminal)
    assert follow(terminal, "rights.md", {}) == 4
    assert "prod, web" in terminal.type("salt-run virt.owners")[1]


def test_templates(terminals):
    """Of guests that are not seeded: see integration/test_cloud_verbs.py for the others."""
    terminals.image()
    here = {
        "init tpl 2 2GiB": "init tpl 2 2GiB host=hv1", "2 2GiB": "1 64MiB seed=False",
        "virt.shutdown": "virt.force_off", "20GiB": "20MiB", "50GiB, pool: ssd": "8MiB",
        "{bridge: br0}": "{type: user}", "{bridge: br100}": "{type: user}",
        "/srv/web": f"{terminals.root}/salt/web", "/srv/tpl": f"{terminals.root}/tpl",
    }  # fmt: skip
    assert follow(terminals, "templates.md", here) == 13


# the verbs that need another host, a guest with a system or a setup, and what they say without
ALONE = {
    "shutdown": "not shutdown", "reboot": "has not rebooted", "exec": "agent", "put": "agent",
    "get": "agent", "migratable": "cannot be moved", "migrate": "there is no other host",
    "evacuate": "there is no other host", "migrate_abort": "no host has a migration",
    "migrate_recover": "no host that answers has an unfinished migration",
    "certs": "no certificates", "volume_delete": "no volume images/web1_data",
    **dict.fromkeys(("backup", "backup_due", "backups", "backup_get", "backup_restore"),
                    "no backup target is configured"),
    **dict.fromkeys(("backup_confirm", "backup_undo"), "no in-place restore"),
    **dict.fromkeys(("ha_enable", "ha_simulate", "ha_move", "ha_rule", "ha_ignore",
                     "ha_disarm", "ha_arm", "ha_confirm_off"),
                    "high availability"),
}  # fmt: skip
# {command: what is typed before it}
BEFORE = {
    "salt-run virt.clone web1 web1-copy": "salt-run virt.force_off web1",
    "salt-run virt.detach web1 interface=52:54:00:8f:2a:11":
        "salt-run virt.attach web1 network=lan mac=52:54:00:8f:2a:11",
    "salt-run virt.start host=hyper1 state=off": "salt-run virt.force_off web1",
    "salt-run virt.backup_restore web1 in_place=True": "salt-run virt.force_off web1",
    "salt-run virt.display web1": "salt-run virt.start web1",
}  # fmt: skip
HERE = {
    "hyper1": "hv1", "hyper2": "hv1", "salt://debian.qcow2": "salt://debian.qcow2 seed=False",
    "seed=cloud-init install=True wait=True": "seed=False", "timeout=300": "timeout=1",
    "virt.reboot web1": "virt.reboot web1 timeout=1", "bridge=br0": "network=lan",
    " 2 2048 ": " 1 64 ", " 4 8G ": " 1 64 ", " 2 2G ": " 1 64 ", " 1 1024 ": " 1 64 ",
    "cpu=4 mem=8G": "cpu=2 mem=128",
}  # fmt: skip


@pytest.mark.slow
def test_the_cheat_sheet(terminal, libvirtd):  # noqa: F811
    """All of its commands, from the top to the bottom."""
    terminal.image()
    terminal.image("cloud.qcow2")
    media = {**discs(terminal, "debian"), "motd": f"{terminal.root}/motd"}
    (terminal.root / "motd").write_text("hello")
    here = {
        **HERE,
        "salt://debian.iso": media["/srv/iso/debian.iso"],
        "40G": "40M",
        "20G": "20M",
        "/srv/files/motd": media["motd"],
        "/root/": f"{terminal.root}/",
    }
    conn = libvirt.open(libvirtd.uri)
    conn.networkCreateXML("<network><name>lan</name></network>")
    wrong, refused = {}, set()
    try:
        created(terminal)
        for command in (command for _wish, commands in rows() for command in commands):
            verb = re.search(r"virt\.(\w+)", command)[1]
            if " -d " in command or verb == "console":  # these need a terminal
                continue
            if command in BEFORE:
                assert terminal.type(BEFORE[command])[0] == 0
            code, printed = terminal.type(replaced(command, here))
            if code and verb in ALONE and ALONE[verb] in printed:
                refused.add(verb)
            elif code:
                wrong[command] = printed
    finally:
        conn.networkLookupByName("lan").destroy()
        conn.close()
    assert not wrong, "\n".join(f"{command}: {printed}" for command, printed in wrong.items())
    assert refused == set(ALONE)


def test_the_states_of_a_manual_are_accepted_by_a_new_host(terminal):
    """With test=True: each would change something, and nothing prevents it."""
    terminal.image()
    opts = {**terminal.modules.opts, "states_dirs": [str(api.REPOSITORY / "_states")], "test": True}
    states = salt.loader.states(opts, terminal.modules, {}, None)
    small = {"cpu": 1, "mem": 64, "seed": False}  # of a guest: the host has few CPUs
    found = {}
    for page in ("states.md", "networks.md", "storage.md", "definitions.md"):
        [path] = (api.REPOSITORY / "docs").rglob(page)
        for name, call, listed in test_manuals.applied(path):
            given = {**listed, **(small if call == "virt.running" else {})}
            for word in ("require", "tpm"):  # swtpm is not on every machine
                given.pop(word, None)
            found[f"{page} {name}"] = states[call](name=name, **given)
    assert len(found) > 6
    assert {name: one for name, one in found.items() if one["result"] is not None} == {}


DHCP = """    - forward: nat
    - ipv4_config:
        cidr: 192.168.124.0/24
        dhcp_ranges:
          - start: 192.168.124.10
            end: 192.168.124.99
"""
LEASES = """        hosts:
          - ip: 192.168.124.5
            mac: '52:54:00:00:00:05'
            name: web1
"""
LEASE = """              ip/hosts:
                  ----------
                  new:
                      ----------
                      ip:
                          192.168.124.5
                      mac:
                          52:54:00:00:00:05
                      name:
                          web1
                  old:
                      None
"""
ON_LAB = """
```console
# salt-run virt.init web1 1 64 salt://debian.qcow2 seed=False host=hv1 \\
    interfaces='[{type: network, source: lab}]'
```
"""
PURGE = """
```console
# salt-run virt.purge web1 force=True
```

"""


def test_states(terminals):
    """The guests have no system that could be seeded or shut down."""
    terminals.image()
    here = {
        "    - config:\n        log_level: info\n    - grains:\n        roles: [web]\n":
            "    - seed: False\n",
        "- target: /srv/images": f"- target: {terminals.root}/images",
        "512MiB": "64MiB", "512 MiB": "64 MiB", "1GiB": "128MiB", "1 GiB": "128 MiB",
        "2GiB": "64MiB", "8GiB": "64MiB", "20GiB": "20MiB", "cpu: 4": "cpu: 2",
        "         image: salt://debian.qcow2\n":
            "         image: salt://debian.qcow2\n         seed: False\n",
        "virt.stopped": "virt.powered_off", "shut down:": "powered off:",
        "      stopped:\n": "      unpowered:\n", "shutdown:\n": "stop:\n",
        # of a host, libvirt says the name of the machine
        "network lab on hyper1": "network lab on …",
        # no dnsmasq on every machine
        DHCP: "    - autostart: True\n", LEASES: "", LEASE: "",
        "next start of the network:\n": f"next start of the network:\n{ON_LAB}",
        "- `virt.pool_deleted` is refused": f"{PURGE}- `virt.pool_deleted` is refused",
    }  # fmt: skip
    assert follow(terminals, "states.md", here) == 20


# guests without a system of their own, as small as possible
BARE = {
    word + " salt://debian.qcow2": small + " salt://debian.qcow2 seed=False"
    for word, small in (("2 2GiB", "1 64MiB"), ("1 1GiB", "1 64MiB"), ("1 256MiB", "1 256MiB"))
}


def test_networks(terminals):
    """Without DHCP: no dnsmasq on every machine."""
    terminals.image()
    here = {DHCP: "    - autostart: True\n", "nat ": "isolated ", "{bridge: br0}": "{type: user}"}
    assert follow(terminals, "networks.md", {**BARE, **here}) == 4


def test_teams(terminals):
    terminals.image()
    terminals.groups = {"anna": ["shop"], "bob": ["shop"]}
    for name in ("shop-db1", "shop-web2", "intranet"):
        created(terminals, name, host="hv1")
    here = {**BARE, "1 GiB of memory": "64 MiB of memory"}
    assert follow(terminals, "teams.md", here) == 6


def test_second_site(terminals):
    terminals.image()
    assert follow(terminals, "second-site.md", BARE) == 2


def test_images(terminals):
    terminals.image()
    (terminals.root / "salt/images").mkdir()
    terminals.image("images/debian12.qcow2", size="20M")
    bare = "1 64MiB salt://images/debian12.qcow2 seed=False"
    here = {**BARE, "2 2GiB salt://images/debian12.qcow2": bare}
    assert follow(terminals, "images.md", here) == 7


def test_placement(terminals):
    terminals.image()
    created(terminals, host="hv1")
    assert follow(terminals, "placement.md", BARE) == 4


def test_snapshots(terminals):
    terminals.image()
    created(terminals)
    assert follow(terminals, "snapshots.md", {}) == 5


def test_purge(terminals, second):
    """The process that created web2 is gone."""
    terminals.image()
    created(terminals, host="hv1")
    created(terminals, "web2", host="hv2", start=False)
    conn = libvirt.open(second.uri)
    text = conn.lookupByName("web2").XMLDesc(libvirt.VIR_DOMAIN_XML_INACTIVE)
    conn.defineXML(text.replace('created="', 'creating="1:1:dead" created="'))
    conn.close()
    assert follow(terminals, "purge.md", {}) == 5


def test_runner(terminals):
    terminals.image()
    created(terminals, host="hv1")
    created(terminals, "web2", host="hv2")
    assert terminals.type("salt-run virt.force_off web1,web2")[0] == 0
    conn = libvirt.open(terminals.modules.opts["virt"]["connection"]["uri"])
    conn.networkCreateXML("<network><name>lan</name></network>")
    folder = terminals.root / "ssd"
    folder.mkdir()
    conn.storagePoolCreateXML(
        f"<pool type='dir'><name>ssd</name><target><path>{folder}</path></target></pool>"
    )
    conn.close()
    here = {**BARE, "# salt-run virt.rename": f"{OFF}# salt-run virt.rename",
            "# salt-run virt.vm_info": f"{ON}# salt-run virt.vm_info",
            "Memory: 1 GiB": "Memory: 64 MiB", "Size: 20 GiB": "Size: 20 MiB",
            "Source: br0": "Source: none", "Type: bridge": "Type: user"}  # fmt: skip
    assert follow(terminals, "runner.md", here) == 17
