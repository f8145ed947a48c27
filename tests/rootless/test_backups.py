"""``salt-run virt.backup_prune`` and ``virt.backup_verify`` as typed: a real master, and the minion
that has the target."""

import json

import pytest

from tests.functional.backed_up import UUID, Guest


@pytest.fixture
def guest(cloud):
    """Two backups on each other, and one by itself."""
    found = Guest(cloud.root / "vault")
    for number in (1, 2):
        found.write(number, number)
        found.back_up()
    found.back_up(whole=True)
    yield found
    found.target.folder.remove(UUID)


def unfolded(lines):
    """The text of a table whose last column is folded."""
    return " ".join(" ".join(lines).split())


def test_read_back_and_removed(cloud, guest):
    made = sorted(guest.images)
    code, lines = cloud.typed("virt.backup_verify", "web1")
    assert code == 0
    assert lines[-5:] == [
        "verified 3 backups at vault: all good",
        "guest  backup                            result",
        *(f"web1   {one}  good" for one in made),
    ]
    code, lines = cloud.typed("virt.backup_prune", test=True)
    assert (code, lines[0]) == (0, "would remove 2 backups from vault and retain 1")
    assert sorted(guest.target.catalog(UUID).good_ids) == made
    told = cloud.run("virt.backup_prune")
    assert told["vault"]["changes"] == {"web1": {"removed": made[1::-1]}}
    assert json.dumps(told)
    assert guest.target.catalog(UUID).good_ids == made[2:]


def test_vm_info_has_the_age_of_the_last_good_backup(cloud, guest):
    conn = cloud.libvirtds["hv1"].connection
    xml = f"<domain type='test'><name>web1</name><uuid>{UUID}</uuid><memory>65536</memory>"
    domain = conn.createXML(f"{xml}<os><type>hvm</type></os></domain>", 0)
    try:
        found = cloud.run("virt.vm_info", "web1")["hv1"]["web1"]
    finally:
        domain.destroy()
    assert found["backups"]["count"] == len(guest.images)
    last = found["backups"]["last"]
    assert (last["target"], last["backup_id"]) == ("vault", max(guest.images))
    assert last["age_s"] >= 0
    assert found["usage"]["memory_bytes"] == 64 << 20


def test_a_broken_one_is_exit_code_1(cloud, guest):
    path = guest.target.folder.path(UUID, max(guest.images), "vda.qcow2")
    with open(path, "r+b") as file:
        data = file.read()
        file.seek(data.index(b"\1" * 65536))
        file.write(b"\7")
    code, lines = cloud.typed("virt.backup_verify", "web1", "latest")
    assert code == 1
    assert "verified 1 backup at vault: 1 not good" in lines
    assert "differ from what was backed up" in unfolded(lines)
    code, lines = cloud.typed("virt.backup_verify", "web1", "99")
    assert (code, len(lines)) == (1, 2)
    assert "no backup '99' of it found" in unfolded(lines)


def test_the_same_on_the_targets_machine(cloud, guest):
    found = cloud.call("hv2", "virt.backup_verify", guest.target.folder.root, "web1", "latest")
    assert [one["problem"] for one in found["backups"]] == [None]
    done = cloud.called("hv2", "virt.backup_prune", "/nonexistent", "{last: 1}")
    assert done.returncode == 1
    assert "cannot use the folder /nonexistent" in done.stdout + done.stderr
