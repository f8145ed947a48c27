from dataclasses import replace

import pytest

from saltvirt.migration import checks, options, storage, transport
from saltvirt.migration.checks import capacity
from saltvirt.migration.checks import request as request_module
from saltvirt.migration.facts import HostCpu, SecretReference
from saltvirt.placement import policy
from tests.unit.migration import facts


def reasons(guest, host=None, target="hv2", **asked):
    host = host or facts.host()
    opts = options.parse(asked)
    plans = storage.plan(guest.disks, host.locations, opts.copy_storage)
    request = request_module.CheckedMigration(opts, transport.parse(target, opts.tunnel), plans)
    return checks.guest_reasons(guest, request) + checks.target_reasons(guest, host, request)


def test_a_guest_that_fits_has_no_reason():
    assert reasons(facts.guest()) == []
    assert reasons(facts.guest(state="shutdown", active=False)) == []


def test_what_is_against_a_stopped_guest_need_not_be_against_a_running_one():
    assert reasons(facts.guest(tpm=True)) == []
    [why] = reasons(facts.guest(snapshots=1, orphaned_layers=["/vm/web1_vda.one"]))
    assert "1 snapshot: " in why


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"state": "crashed"}, "the guest is crashed"),
        ({"job": "migration"}, "virt.migrate_abort"),
        ({"persistent": False}, "transient"),
        ({"managed_save": True}, "saved memory"),
        ({"snapshots": 1}, "1 snapshot: "),
        ({"hostdevs": ["pci_0000_01_00_0"]}, "pci_0000_01_00_0"),
        ({"filesystems": ["share"]}, "folder share"),
        ({"incomplete": "runs from elsewhere"}, "runs from elsewhere"),
        ({"tpm": True, "active": False, "state": "shutdown"}, "TPM"),
    ],
)
def test_reasons_of_the_guest(changes, words):
    found = reasons(facts.guest(**changes))
    assert len(found) == 1
    assert words in found[0]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"host_uuid": "h-1"}, "where the guest already is"),
        ({"domains": [facts.domain(name="web1")]}, "named web1"),
        ({"domains": [facts.domain(uuid="u-1")]}, "UUID u-1"),
        ({"domains": [facts.domain(macs=["52:54:00:00:00:01"])]}, "MAC address 52:54:00:00:00:01"),
        ({"hypervisor": "Xen"}, "runs Xen"),
        ({"qemu": 6002000}, "QEMU 6.2.0 on hv2 is older than 7.2.22"),
        ({"error": "no such machine"}, "no such machine"),
        ({"memory_kib": 2**20 - 1}, "hv2: 512 MiB of memory requested"),
        ({"cpus": 1}, "hv2: 2 vCPUs requested"),
        ({"max_vcpus": 1}, "at most 1 CPU"),
        ({"cpu_error": "it lacks avx2"}, "avx2"),
        ({"bridges": []}, "no bridge br0"),
        ({"free_bytes": {"/vm": 1024}}, "/vm on hv2 has 1 KiB free"),
        ({"locations": {"/vm/web1_vda.qcow2": facts.place(True)}}, "already has"),
    ],
)  # fmt: skip
def test_reasons_of_the_target(changes, words):
    found = reasons(facts.guest(), facts.host(**changes))
    assert len(found) == 1
    assert words in found[0]


INTEL = {"vendor": "Intel", "model": "Skylake-Server", "features": ["avx512f", "vmx"]}


@pytest.mark.parametrize(
    ("there", "words"),
    [
        (INTEL, None),
        (None, None),
        ({**INTEL, "features": ["avx512f", "vmx", "pku"]}, None),
        ({**INTEL, "model": "Haswell"}, "hv2 has Intel Haswell, not Intel Skylake-Server"),
        ({**INTEL, "vendor": "AMD", "model": "EPYC"}, "hv2 has AMD EPYC, not Intel Skylake-Server"),
        ({**INTEL, "features": ["vmx"]}, "hv2 has a CPU without avx512f"),
    ],
)
def test_a_guest_with_the_cpu_of_its_host_needs_the_same_one_there(there, words):
    """libvirt calls it compatible with any host."""
    guest = facts.guest(host_cpu=INTEL)
    host = facts.host(cpu=there and HostCpu.from_answer(there, "hv2"))
    found = reasons(guest, host)
    assert len(found) == bool(words)
    if words:
        assert words in found[0]
        assert "host-passthrough" in found[0]
    asked = request_module.CheckedMigration(
        options.parse({"other_cpu": True}), transport.parse("hv2")
    )
    assert checks.cpu.describe_mismatch(*(HostCpu.from_answer(INTEL, "x"),) * 2) is None
    assert [*checks.cpu.reasons(guest, host, asked)] == []
    assert reasons(replace(guest, active=False, state="shutdown"), host) == []
    assert reasons(facts.guest(), host) == [], "a model that libvirt compares"


def test_all_reasons_come_at_once():
    guest = facts.guest(snapshots=1)
    host = facts.host(bridges=[], memory_kib=1, cpu_error="older")
    assert len(reasons(guest, host)) == 4


def test_an_older_patch_release_of_qemu_will_do():
    assert reasons(facts.guest(), facts.host(qemu=7002001)) == []


def test_what_could_not_be_found_out_is_no_reason():
    assert reasons(facts.guest(), facts.host(bridges=None, free_bytes={"/vm": None})) == []
    assert reasons(facts.guest(host_uuid=None), facts.host(host_uuid=None)) == []
    assert reasons(facts.guest(), facts.host(max_vcpus=None)) == []


@pytest.mark.parametrize(
    ("nic", "words"),
    [
        ({"type": "network", "source": "lan"}, "no network lan"),
        ({"type": "network", "source": "off"}, "not started"),
        ({"type": "direct", "source": "eth9"}, "no network interface eth9"),
    ],
)
def test_networks(nic, words):
    guest = facts.guest(nics=[nic | {"mac": "52:54:00:00:00:02"}] * 2)
    found = reasons(guest, facts.host(networks={"off": False}))
    assert len(found) == 1
    assert words in found[0]
    there = {"type": "network", "source": "default", "mac": "52:54:00:00:00:02"}
    assert reasons(facts.guest(nics=[there])) == []


SHARED = {"/vm/web1_vda.qcow2": facts.place(True, True)}


def test_a_shared_disk_is_not_copied_and_wants_a_coherent_cache():
    safe = facts.guest(disks=[facts.disk(cache="none")])
    assert reasons(safe, facts.host(locations=SHARED)) == []
    assert (
        "cache=writeback"
        in reasons(
            facts.guest(disks=[facts.disk(cache="writeback")]), facts.host(locations=SHARED)
        )[0]
    )
    assert "onto itself" in reasons(safe, facts.host(locations=SHARED), copy_storage="all")[0]
    [why] = reasons(facts.guest(), facts.host(locations=SHARED))
    assert "cache=default" in why


@pytest.mark.parametrize(
    ("host", "cache"),
    [({"cpu_error": "it lacks avx2"}, "none"), ({"qemu": 6002000}, "none"),
     ({"locations": SHARED}, "writeback")],
)  # fmt: skip
def test_what_is_against_a_running_guest_need_not_be_against_a_stopped_one(host, cache):
    guest, there = facts.guest(disks=[facts.disk(cache=cache)]), facts.host(**host)
    assert len(reasons(guest, there)) == 1
    assert reasons(replace(guest, active=False, state="shutdown"), there) == []


def test_a_disk_of_a_server_is_neither_copied_nor_cached_by_its_host():
    served = facts.disk(type="network", source="rbd/web1", cache="writeback", network={
        "protocol": "rbd", "name": "rbd/web1", "hosts": [{"name": "ceph1"}]})  # fmt: skip
    assert reasons(facts.guest(disks=[served])) == []
    assert reasons(facts.guest(disks=[served]), copy_storage="all") == []


def test_a_disk_without_a_name_that_stays_is_named_all_the_same():
    [why] = reasons(facts.guest(disks=[facts.disk(type="nvme", source=None)]))
    assert why.startswith("disk vda (without a source) stays: ")


def test_a_disk_that_is_not_shared_needs_a_copy():
    assert "copy_storage is off" in reasons(facts.guest(), copy_storage="never")[0]
    assert "no backing file" in reasons(facts.guest(), copy_storage="incremental")[0]
    thin = facts.guest(disks=[facts.disk(chain=[facts.BASE])])
    assert reasons(thin, copy_storage="incremental") == []


def test_a_tunnel_carries_no_disk_of_a_running_guest():
    assert "virt:tunnel" in reasons(facts.guest(), tunnel=True)[0]
    assert reasons(facts.guest(state="shutdown", active=False), tunnel=True) == []
    assert (
        reasons(
            facts.guest(disks=[facts.disk(cache="none")]), facts.host(locations=SHARED), tunnel=True
        )
        == []
    )


def test_a_cdrom_must_be_on_the_target_too():
    iso = facts.disk(target="sda", device="cdrom", source="/iso/d.iso", read_only=True)
    assert "cdrom sda is /iso/d.iso" in reasons(facts.guest(disks=[iso]))[0]
    there = facts.host(locations={"/iso/d.iso": facts.place(True)})
    assert reasons(facts.guest(disks=[iso]), there) == []
    assert reasons(facts.guest(disks=[facts.disk(device="cdrom", source="", read_only=True)])) == []
    seed = facts.disk(device="cdrom", source="/srv/i/_seed/web1.iso", read_only=True)
    [why] = reasons(facts.guest(disks=[seed]))
    assert "put it there" not in why and "salt-run virt.seed_eject web1 ejects" in why
    served = facts.volume("rbd", device="cdrom", read_only=True)
    assert "cdrom vda is data/web1_vda" in reasons(facts.guest(disks=[served]))[0]


def test_a_block_device_needs_a_pool_on_the_target():
    block = facts.disk(type="block", source="/dev/vg/web1", format="raw")
    none = {"/dev/vg/web1": facts.place(shared=None, reason="the target has no pool")}
    [why] = reasons(facts.guest(disks=[block]), facts.host(locations=none))
    assert why == "disk vda (/dev/vg/web1) stays: the target has no pool"
    pool = {"/dev/vg/web1": facts.place(pool="vg")}
    assert reasons(facts.guest(disks=[block]), facts.host(locations=pool)) == []


@pytest.mark.parametrize(
    ("domains", "reservations", "fits"),
    [
        ([facts.domain(memory_kib=3 * 2**20)], [], True),
        ([facts.domain(memory_kib=3 * 2**20 + 1024)], [], False),
        ([facts.domain(memory_kib=3 * 2**20, state="shutdown")], [facts.reservation()], False),
        ([], [facts.reservation(memory_kib=3 * 2**20 + 1024)], False),
        ([], [facts.reservation(memory_kib=3 * 2**20 + 1024, name="web1")], True),
        ([facts.domain(vcpus=30)], [], True),
        ([facts.domain(vcpus=30)], [facts.reservation()], False),
    ],
)
def test_what_the_target_has_promised_counts(domains, reservations, fits):
    """4 GiB and 8 CPUs, four times promised; 512 MiB are the host's own; the guest wants 2, and
    each guest's QEMU 62 MiB, 8 for each vCPU, and page tables."""
    one = 2**10 * (62 + 8)
    room = {"memory_kib": 4 * 2**20 + 2 * one + 8 * 2**10 + 7 * 2**10}
    if any(domain.guest.vcpus > 9 for domain in domains) or reservations:
        room["memory_kib"] += 29 * 8 * 2**10 * bool(domains)
    found = reasons(facts.guest(), facts.host(domains=domains, reservations=reservations, **room))
    assert (found == []) == fits, found


def test_the_targets_own_ratios_count():
    full = facts.host(domains=[facts.domain(memory_kib=3 * 2**20 + 1024)])
    request = request_module.CheckedMigration(
        options.parse({}), transport.parse("hv2"), ratios={"memory": 1.5}
    )
    assert list(capacity.reasons(facts.guest(), full, request)) == []


def test_a_stopped_guest_counts_as_the_policy_says():
    full = facts.host(domains=[facts.domain(memory_kib=3 * 2**20 + 1024)])
    off = facts.guest(active=False, state="shutdown")
    placement = policy.PlacementPolicy(stopped_ratio=0.5)
    request = request_module.CheckedMigration(
        options.parse({}), transport.parse("hv2"), placement=placement
    )
    assert list(capacity.reasons(off, full, request)) == []
    assert list(capacity.reasons(replace(off, autostart=True), full, request)) != []
    assert list(capacity.reasons(facts.guest(), full, request)) != []


def test_a_container_has_no_qemu_that_takes_memory():
    host = facts.host(memory_kib=2 * 2**19)
    request = request_module.CheckedMigration(options.parse({}), transport.parse("hv2"))
    assert list(capacity.reasons(facts.guest(virt_type="lxc"), host, request)) == []
    for other in ("kvm", "qemu", None):
        [why] = capacity.reasons(facts.guest(virt_type=other), host, request)
        assert "for QEMU" in why


def test_the_variables_of_another_guests_firmware_are_not_written_over():
    store = "/nvram/web1_VARS.fd"
    there = facts.host()
    there.locations[store] = facts.place(True)
    assert store in reasons(facts.guest(nvram=store), there)[0]
    there.locations[store] = facts.place(True, None, reason="nobody could look")
    assert "nobody could look" in reasons(facts.guest(nvram=store), there)[0]
    there.locations[store] = facts.place(True, True)
    assert reasons(facts.guest(nvram=store), there) == []
    there.locations[store] = facts.place(True, None)
    assert "both hosts share it is not known" in reasons(facts.guest(nvram=store), there)[0]
    there.locations[store] = facts.place(False, False)
    assert reasons(facts.guest(nvram=store), there) == []
    assert "not in a file" in reasons(facts.guest(nvram=""), there)[0]
    assert reasons(facts.guest(nvram=None), there) == []


def test_a_volume_of_that_name_on_the_target_is_somebody_elses():
    there = facts.host(free_bytes={"/data": 2**34})
    seen = facts.place(pool="data", path="/data/web1_vda")
    there.locations["data/web1_vda"] = seen
    guest = facts.guest(disks=[facts.volume()])
    assert reasons(guest, there) == []
    there.locations["data/web1_vda"] = replace(seen, exists=True)
    assert "already has /data/web1_vda" in reasons(guest, there)[0]
    there.locations["data/web1_vda"] = facts.place(shared=None, error="hv2 has no pool")
    assert reasons(guest, there) == ["disk vda (data/web1_vda) stays: hv2 has no pool"]


def test_a_shared_device_wants_a_coherent_cache_too():
    seen = {"data/web1_vda": facts.place(True, True, pool="data")}
    lun = facts.guest(disks=[facts.volume("scsi", cache="writeback")])
    assert "cache=writeback" in reasons(lun, facts.host(locations=seen))[0]
    lun = facts.guest(disks=[facts.volume("scsi", cache="none")])
    assert reasons(lun, facts.host(locations=seen)) == []


def test_a_shared_overlay_stands_on_the_same_image_there():
    overlay = facts.guest(disks=[facts.disk(cache="none", chain=[facts.BASE])])
    there = facts.host(
        locations=SHARED | {facts.BASE["path"]: facts.place(True, None, same_content=False)}
    )
    assert "another /images/debian.qcow2" in reasons(overlay, there)[0]
    there.locations[facts.BASE["path"]] = facts.place(True, None, same_content=True)
    assert reasons(overlay, there) == []


def test_the_disk_as_it_was_before_a_snapshot_comes_to_its_own_place():
    own = facts.BASE | {"owned": True}
    guest = facts.guest(disks=[facts.disk(chain=[own])], active=False, state="shutdown")
    there = facts.host()
    there.locations[own["path"]] = facts.place()
    assert reasons(guest, there) == []
    there.locations[own["path"]] = facts.place(True)
    assert "which is not the backing file of disk vda" in reasons(guest, there)[0]
    there.locations[own["path"]] = facts.place(True, None, reason="nobody can write there")
    assert "nobody can write there" in reasons(guest, there)[0]
    volume = facts.guest(disks=[facts.volume(chain=[own | {"path": "/data/web1_vda.old"}])])
    there = facts.host(free_bytes={})
    there.locations["data/web1_vda"] = facts.place(path="/srv/web1_vda")
    there.locations["/data/web1_vda.old"] = facts.place()
    [why] = reasons(volume, there)
    assert "pool data is in /srv on hv2: delete the guest's snapshots first" in why


def test_files_of_snapshots_that_no_disk_stands_on_would_stay_behind():
    guest = facts.guest(
        active=False, state="shutdown", snapshots=2, orphaned_layers=["/vm/web1_vda.one"]
    )
    assert "/vm/web1_vda.one" in reasons(guest)[0]


def test_an_emulator_of_another_path_is_for_a_stopped_guest():
    there = facts.host(has_emulator=False, emulator="/usr/libexec/qemu-kvm")
    [why] = reasons(facts.guest(), there)
    assert "/usr/bin/kvm, which hv2 does not have" in why
    assert reasons(facts.guest(active=False, state="shutdown"), there) == []


def test_an_image_of_a_network_file_system_is_not_put_under_its_mount():
    base = facts.BASE | {"fs": "nfs"}
    [why] = reasons(facts.guest(disks=[facts.disk(chain=[base])]))
    assert "that hv2 does not show: mount it there" in why


@pytest.mark.parametrize(
    ("active", "asked", "words"),
    [
        (True, {"live": False}, "live=False, but the guest runs"),
        (True, {"offline": True}, "offline=True, but the guest runs"),
        (False, {"postcopy": True}, "postcopy=True, but the guest does not run"),
        (False, {"live": False}, None),
        (True, {"live": True}, None),
        (False, {"offline": True}, None),
        (True, {"postcopy": True}, None),
    ],
)
def test_what_is_asked_for_fits_whether_the_guest_runs(active, asked, words):
    found = reasons(facts.guest(active=active, state="running" if active else "shutdown"), **asked)
    assert len(found) == bool(words)
    assert not words or words in found[0]


def test_a_stopped_guest_takes_its_host_devices_by_name():
    guest = facts.guest(hostdevs=["pci_0000_01_00_0"], active=False, state="shutdown")
    assert reasons(guest) == []


def test_a_guest_of_the_same_uuid_is_one_reason_and_no_second_for_its_mac():
    twin = facts.domain(name="old", uuid="u-1", macs=["52:54:00:00:00:01"])
    assert reasons(facts.guest(), facts.host(domains=[twin])) == [
        "old on hv2 has the guest's UUID u-1"
    ]


def test_versions_are_compared_and_told_as_qemu_tells_them():
    old, new = facts.guest(qemu=2009007), facts.host(qemu=2009006)
    assert reasons(old, new) == [], "another patch release"
    [why] = reasons(facts.guest(qemu=10000000), facts.host(qemu=9002001))
    assert why.startswith("QEMU 9.2.1 on hv2 is older than 10.0.0 on the source")


def test_as_many_cpus_as_the_machine_type_has_will_do():
    assert reasons(facts.guest(), facts.host(max_vcpus=2)) == []


def test_a_network_interface_that_is_there_or_of_which_nothing_is_known():
    guest = facts.guest(nics=[{"type": "direct", "source": "eth0", "mac": "52:54:00:00:00:02"}])
    assert reasons(guest) == []
    assert reasons(guest, facts.host(links=None)) == []


@pytest.mark.parametrize(
    ("changes", "placement", "left"),
    [
        ({}, {}, None),
        ({"free_bytes": {"/vm": 2**30 - 1}}, {}, "1024 MiB"),
        ({"growth": {"/vm": 1}}, {}, "1024 MiB"),
        ({"growth": {"/vm": 2**31}}, {}, "0 B"),
        ({"growth": {"/other": 2**31}}, {}, None),
        ({"reservations": [facts.reservation(disks=[("/vm", 2**29)])]}, {}, "512 MiB"),
        ({"reservations": [facts.reservation(disks=[("/other", 2**29)])]}, {}, None),
        ({"reservations": [facts.reservation(name="web1", disks=[("/vm", 2**29)])]}, {}, None),
        ({"free_bytes": {"/vm": 2**29}}, {"disk_ratio": 2.0}, None),
        ({"free_bytes": {"/vm": 2**29 - 1}}, {"disk_ratio": 2.0}, "1024 MiB"),
        ({"free_bytes": {"/vm": (10 + 64) * 2**20}}, {}, "74 MiB"),
    ],
)
def test_the_disks_may_become_as_large_as_they_are_and_fit_beside_what_is_promised(
    changes, placement, left
):
    """One disk of 1 GiB, of which 10 MiB are used; 64 MiB have to stay free while it is copied."""
    host = facts.host(**{"free_bytes": {"/vm": 2**30}, **changes})
    plans = storage.plan(facts.guest().disks, host.locations, None)
    by = policy.PlacementPolicy(**placement)
    request = request_module.CheckedMigration(
        options.parse({}), transport.parse("hv2"), plans, placement=by
    )
    found = checks.target_reasons(facts.guest(), host, request)
    expected = f"hv2: 1 GiB of disk requested in /vm, {left} free and not promised to other guests"
    assert found == ([expected] if left else [])


def test_who_asks_for_overcommit_gets_it():
    full = facts.host(memory_kib=1024, cpus=1)
    request = request_module.CheckedMigration(
        options.parse({}), transport.parse("hv2"), overcommit=True
    )
    assert checks.target_reasons(facts.guest(), full, request) == []


def test_what_an_earlier_attempt_left_of_the_guest_itself_does_not_count():
    shadow = facts.domain(uuid="u-1", name="web1", memory_kib=4 * 2**20)
    request = request_module.CheckedMigration(options.parse({}), transport.parse("hv2"))
    assert list(capacity.reasons(facts.guest(), facts.host(domains=[shadow]), request)) == []


def test_a_medium_of_a_server_needs_no_file_on_the_target():
    source = {"protocol": "http", "name": "d.iso", "hosts": [{"name": "mirror", "port": "80"}]}
    iso = facts.disk(device="cdrom", type="network", source="d.iso", network=source, read_only=True)
    assert reasons(facts.guest(disks=[iso])) == []


def test_a_disk_that_other_guests_write_to_is_not_copied():
    [why] = reasons(facts.guest(disks=[facts.disk(shareable=True)]))
    assert why == "disk vda is shared with other guests and cannot be copied"


def test_a_block_device_whose_target_has_no_pool_for_it():
    block = facts.disk(type="block", source="/dev/vg/web1", format="raw")
    seen = {"/dev/vg/web1": facts.place()}
    [why] = reasons(facts.guest(disks=[block]), facts.host(locations=seen, free_bytes={}))
    assert "/dev/vg/web1, for which hv2 has no storage pool" in why


def test_an_overlay_of_a_running_guest_can_be_made_whole_and_of_a_stopped_one_not():
    thin = facts.guest(disks=[facts.disk(chain=[facts.BASE])])
    off = {"active": False, "state": "shutdown"}
    other = facts.host()
    other.locations[facts.BASE["path"]] = facts.place(True, same_content=False)
    assert reasons(thin, other, copy_storage="all") == [], "it needs no image there then"
    [why] = reasons(replace(thin, **off), copy_storage="all")
    assert "copy_storage is all, but the overlay /vm/web1_vda.qcow2 of a stopped guest" in why
    assert reasons(facts.guest(**off), copy_storage="all") == []
    assert reasons(replace(thin, **off)) == [], "the image is brought"


def test_an_image_that_both_hosts_mount_is_the_same_one():
    base = facts.BASE | {"fs": "nfs"}
    there = facts.host()
    there.locations[base["path"]] = facts.place(True, True)
    assert reasons(facts.guest(disks=[facts.disk(chain=[base])]), there) == []


def test_the_disk_as_it_was_before_a_snapshot_may_lie_on_shared_storage_or_in_the_same_pool():
    own = facts.BASE | {"owned": True}
    guest = facts.guest(disks=[facts.disk(chain=[own])], active=False, state="shutdown")
    there = facts.host()
    there.locations[own["path"]] = facts.place(True, True)
    assert reasons(guest, there) == []
    volume = facts.guest(disks=[facts.volume(chain=[own | {"path": "/data/web1_vda.old"}])])
    there = facts.host(free_bytes={})
    there.locations["data/web1_vda"] = facts.place(path="/data/web1_vda")
    there.locations["/data/web1_vda.old"] = facts.place()
    assert reasons(volume, there) == []


def test_just_enough_room_for_what_is_copied():
    there = facts.host(free_bytes={"/vm": (10 + 64) * 2**20 - 1})
    [why] = reasons(facts.guest(), there)
    assert why.startswith("/vm on hv2 has ")
    assert why.endswith("10 MiB are to be copied")


@pytest.mark.parametrize(
    ("mine", "theirs", "active", "state", "refused"),
    [
        (3, {3}, True, "running", True), (3, {3}, True, "paused", True),
        (3, {3}, True, "shutdown", False), (3, {3}, False, "running", False),
        (3, {4}, True, "running", False), (None, {3}, True, "running", False),
        (3, (), True, "running", False),
    ],
)  # fmt: skip
def test_a_fixed_cid_is_one_running_guests_on_a_host(mine, theirs, active, state, refused):
    there = replace(facts.domain(name="db1", state=state), cids=frozenset(theirs))
    guest = facts.guest(cid=mine, active=active, state="running" if active else "shutdown")
    found = reasons(guest, facts.host(domains=[there]))
    assert ["db1 on hv2 has the vsock CID 3" in why for why in found] == [True] * refused


def test_a_secret_that_the_target_lacks_is_named_with_what_to_type():
    one = SecretReference("disk vda", "12-34", "ceph client.virt")
    [why] = reasons(facts.guest(), facts.host(missing_secrets=(one,)))
    assert why.startswith("disk vda needs libvirt's secret 12-34 (ceph client.virt), which hv2 ")
    assert "virsh secret-define" in why and "secret-set-value 12-34" in why


LATER = {"target": "vdb", "source": "/vm/web1_vdb.qcow2"}


@pytest.mark.parametrize(
    ("changes", "place", "words"),
    [
        ({}, {"shared": True, "exists": True}, None),
        ({}, {"shared": False}, "disk vdb (/vm/web1_vdb.qcow2) is the guest's from its next start"),
        ({}, {"shared": None}, "is the guest's from its next start on, and hv2 does not have it: "),
        ({"read_only": True, "device": "cdrom"}, {"exists": True}, None),
        ({"read_only": True, "device": "cdrom"}, {}, "cdrom vdb is /vm/web1_vdb.qcow2, which hv2 "),
    ],
)
def test_a_disk_of_the_next_start_would_stay_behind(changes, place, words):
    """libvirt takes the definition along: the guest could not be started again."""
    places = {"/vm/web1_vda.qcow2": facts.place(), LATER["source"]: facts.place(**place)}
    guest = facts.guest(pending_disks=[facts.disk(**LATER, **changes)])
    found = reasons(guest, facts.host(locations=places))
    assert len(found) == bool(words)
    assert words is None or words in found[0]


@pytest.mark.parametrize(
    ("point", "changes", "folder"),
    [
        ("/vm", {}, "/vm"),
        ("/", {}, None),
        ("/v", {}, None),
        ("/images", {"disks": [facts.disk(chain=[facts.BASE])]}, "/images"),
        ("/var/lib/libvirt", {"nvram": "/var/lib/libvirt/qemu/nvram/web1.fd"},
         "/var/lib/libvirt/qemu/nvram"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shared", [True, False])
def test_nothing_is_copied_below_a_mount_point_on_which_nothing_is_mounted(
    point, changes, folder, shared
):
    """It would fill the root's file system, and the next mount would hide it."""
    guest = facts.guest(active=False, state="shutdown", **changes)
    paths = ["/vm/web1_vda.qcow2", facts.BASE["path"], guest.nvram or "-"]
    host = facts.host(locations={path: facts.place(shared=shared, exists=shared) for path in paths})
    plans = storage.plan(guest.disks, host.locations)
    request = request_module.CheckedMigration(
        options.parse({}), transport.parse("hv2"), plans, unmounted=(point,) if point != "/" else ()
    )
    found = checks.target_reasons(guest, host, request)
    said = f"{point} is not mounted on hv2: nothing is copied to {folder} there; mount it, or see "
    assert found == ([f"{said}virt.forget_mount"] if folder and not shared else [])


@pytest.mark.parametrize(
    ("active", "shared", "refused"),
    [(True, False, True), (False, False, False), (True, True, False)],
)
def test_a_disk_that_qemu_encrypts_is_copied_of_a_stopped_guest_alone(active, shared, refused):
    """libvirt starts QEMU on the target with a file that is no LUKS yet."""
    disk = facts.disk(encrypted=True, cache="none")
    places = {disk["source"]: facts.place(shared=shared, exists=shared)}
    guest = facts.guest(disks=[disk], active=active, state="running" if active else "shutdown")
    found = reasons(guest, facts.host(locations=places))
    assert ["disk vda is encrypted by QEMU" in why for why in found] == [True] * refused
