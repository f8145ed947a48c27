"""Prepare a guest's file system, independent of the backend.

``tree`` is a seed.tree.DirTree or seed.guestfish.GuestfishTree: both take absolute paths of the
guest and never leave its root.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from saltvirt import errors
from saltvirt.seed import firstboot, network, rebind
from saltvirt.seed.data import (
    INSTALL_BY_CLOUD_INIT,
    INSTALL_IN_IMAGE,
    INSTALL_NEVER,
    minion_config,
    to_yaml,
)
from saltvirt.seed.draft import Draft, partially_seeded

if TYPE_CHECKING:
    from saltvirt.seed.data import SeedData
    from saltvirt.seed.tree import GuestFiles, GuestSystem

_MINIONS = (
    "/usr/bin/salt-minion",
    "/usr/local/bin/salt-minion",
    "/opt/saltstack/salt/salt-minion",
    "/opt/saltstack/salt/bin/salt-minion",
    "/opt/salt/bin/salt-minion",
    "/bin/salt-minion",
)
_BUNDLE = "/usr/bin/venv-salt-minion"  # Uyuni's and SUSE's own build
_UNIT_FOLDERS = ("/etc/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_WANTS = "/etc/systemd/system/multi-user.target.wants"
_SSH_SERVERS = ("/usr/sbin/sshd", "/usr/bin/sshd")
DROP_IN = "zz-salt-virt.conf"


def _service(tree: GuestFiles) -> tuple[str | None, str]:
    """(name of the minion's service, its configuration folder), or (None, /etc/salt).

    A program without a service that starts it does not count as a minion.
    """
    if any(tree.exists(path) for path in _MINIONS) and _starts(tree, "salt-minion"):
        return "salt-minion", "/etc/salt"
    if tree.exists(_BUNDLE) and _starts(tree, "venv-salt-minion"):
        return "venv-salt-minion", "/etc/venv-salt-minion"
    return None, "/etc/salt"


def _starts(tree: GuestFiles, service: str) -> bool:
    """Whether the system starts the service at boot."""
    places = [f"{folder}/{service}.service" for folder in _UNIT_FOLDERS]
    return not has_systemd(tree) or any(map(tree.exists, [*places, f"/etc/init.d/{service}"]))


def _write_config(tree: GuestFiles, data: SeedData, folder: str) -> str:
    """Write the configuration, and write it again where drop-ins of the image would override it."""
    config = minion_config(data)
    pki = config.get("pki_dir") or f"{folder}/pki/minion"
    text = to_yaml({**config, "pki_dir": pki}).encode()
    tree.write(f"{folder}/minion", text, 0o640)
    tree.write(f"{folder}/minion_id", data.id.encode(), 0o644)
    drop_ins = f"{folder}/minion.d"
    if any(name.endswith(".conf") for name in tree.names(drop_ins)):
        tree.write(f"{drop_ins}/{DROP_IN}", text, 0o640)
    return pki


def _write_keys(tree: GuestFiles, data: SeedData, pki: str) -> None:
    tree.make_dir(pki, 0o700)
    tree.write(f"{pki}/minion.pem", data.private_key.encode(), 0o400)
    tree.write(f"{pki}/minion.pub", data.public_key.encode(), 0o600)
    for name, key in (
        ("minion_master.pub", data.master_public_key),
        ("master_sign.pub", data.master_sign_key),
    ):
        # if there is no new key, the image's belongs to another master
        if key:
            tree.write(f"{pki}/{name}", key.encode(), 0o644)
        else:
            tree.remove(f"{pki}/{name}")


def _write_hostname(tree: GuestFiles, hostname: str) -> None:
    tree.write("/etc/hostname", f"{hostname}\n".encode(), 0o644)
    names = hostname if "." not in hostname else f"{hostname} {hostname.split('.', maxsplit=1)[0]}"
    for path, line, new in (
        ("/etc/hosts", rb"(?m)^127\.0\.1\.1\s.*$", f"127.0.1.1 {names}"),
        ("/etc/sysconfig/network", rb"(?m)^HOSTNAME=.*$", f"HOSTNAME={hostname}"),
    ):
        if tree.exists(path):
            text = tree.read(path)
            changed = re.sub(line, new.encode(), text)
            if changed != text:
                tree.write(path, changed, 0o644)


def _reset_machine_id(tree: GuestFiles) -> None:
    """Empty the file, so that systemd generates a new id at the next boot."""
    if tree.exists("/etc/machine-id"):
        tree.write("/etc/machine-id", b"", 0o444)
    if tree.is_file("/var/lib/dbus/machine-id"):
        tree.remove("/var/lib/dbus/machine-id")


def has_systemd(tree: GuestFiles) -> bool:
    return any(tree.exists(f"{folder}/multi-user.target") for folder in _UNIT_FOLDERS)


def enable(tree: GuestFiles, unit: str) -> None:
    """Make systemd start a unit at boot."""
    for folder in _UNIT_FOLDERS:
        if tree.exists(f"{folder}/{unit}"):
            tree.make_dir(_WANTS, 0o755)
            tree.link(f"{folder}/{unit}", f"{_WANTS}/{unit}")
            return


def _ssh_keys(tree: GuestFiles, reset: bool) -> None:
    """Remove the image's host keys if ``reset`` is set. If there are none then, the system
    generates its own at boot: images of Debian and Ubuntu have none and leave them to
    cloud-init."""
    paths = [f"/etc/ssh/{n}" for n in tree.names("/etc/ssh") if n.startswith("ssh_host_")]
    host_keys = [path for path in paths if not tree.is_dir(path)]
    serves = any(map(tree.exists, _SSH_SERVERS))
    # first: a process that is killed in between would find no keys the next time, and no new ones
    # would be generated
    if (reset or not host_keys) and (host_keys or serves) and has_systemd(tree):
        tree.write(f"{_UNIT_FOLDERS[0]}/{firstboot.SSH_UNIT}", firstboot.SSH_KEYS.encode(), 0o644)
        enable(tree, firstboot.SSH_UNIT)
    if reset:
        for path in host_keys:
            tree.remove(path)


def _install(tree: GuestFiles, data: SeedData) -> str | None:
    """Install a minion if there is none. Returns a script that has to be run, or None."""
    if data.install == INSTALL_NEVER:
        raise errors.SeedFailed(
            f"the image of {data.id} has no salt-minion, so its configuration and keys would have "
            "no effect: allow the installation (install=True), or use another image"
        )
    if not data.bootstrap:
        raise errors.SeedFailed("the image has no salt-minion and there is no bootstrap script")
    if data.install == INSTALL_IN_IMAGE:
        return data.bootstrap()
    if not has_systemd(tree):
        raise errors.SeedFailed("the image has no systemd to run the bootstrap script at boot")
    for path, text, mode in firstboot.files(data.bootstrap(), data.bootstrap_args):
        tree.write(path, text.encode(), mode)
    enable(tree, firstboot.UNIT)
    return None


def _run(tree: GuestSystem, script: str, args: str) -> None:
    tree.run_script(script, args)
    if not _service(tree)[0]:
        raise errors.SeedFailed("the bootstrap script succeeded but installed no salt-minion")


def seed(tree: GuestSystem, data: SeedData) -> None:
    """Prepare the guest. Raises SeedFailed if the tree contains no system or cannot be changed.

    Everything is checked before anything is written: after an error the guest is unchanged, unless
    the error says that it is partially seeded.
    """
    draft = Draft(tree)
    if not draft.is_dir("/etc"):
        raise errors.SeedFailed("the disk has no /etc, so it contains no operating system to seed")
    service, folder = _service(draft)
    pki = _write_config(draft, data, folder)
    _write_keys(draft, data, pki)
    if data.hostname:
        _write_hostname(draft, data.hostname)
    notes = rebind.rebind(draft, data.macs)
    if unit := network.configure(draft, data.nics):
        enable(draft, unit)
    if data.reset_machine_id:
        _reset_machine_id(draft)
    _ssh_keys(draft, data.reset_ssh_keys)
    script = None
    if service:
        enable(draft, f"{service}.service")
    elif data.install != INSTALL_BY_CLOUD_INIT:
        script = _install(draft, data)
    if re.search(rb"(?m)^SELINUX=(enforcing|permissive)", _text(draft, "/etc/selinux/config")):
        draft.write("/.autorelabel", b"", 0o644)  # what we wrote has no labels
        notes.append(
            "SELinux: at its next boot, the system relabels all files and restarts once, "
            "which takes minutes, or longer with many files"
        )
    if script:
        tree.prove_scripts()
    draft.commit()
    if script:
        with partially_seeded():
            _run(tree, script, data.bootstrap_args)
    for note in notes:
        data.report(note)


def _text(tree: GuestFiles, path: str) -> bytes:
    return tree.read(path) if tree.exists(path) else b""
