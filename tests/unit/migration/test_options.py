import pytest

from saltvirt.answers.migration import Certificate
from saltvirt.errors import InvalidInput
from saltvirt.migration import flags, options, transport
from saltvirt.migration.options import MigrationSettings
from tests.unit.migration import facts


def test_salts_arguments_reach_libvirt():
    asked = options.parse(
        {
            "max_bandwidth": "100",
            "compressed": True,
            "comp_methods": "mt, xbzrle",
            "comp_mt_level": 0,
            "comp_mt_threads": 2,
            "comp_mt_dthreads": 3,
            "comp_xbzrle_cache": 65536,
            "postcopy_bandwidth": 50,
            "auto_converge": True,
            "auto_converge_initial": 20,
            "auto_converge_increment": 10,
            "postcopy": True,
        }
    )
    names = flags.flags(asked, transport.parse("hv2"), "incremental", live=True)
    assert names == {
        "PEER2PEER", "LIVE", "TLS", "PERSIST_DEST", "UNDEFINE_SOURCE", "COMPRESSED", "POSTCOPY",
        "AUTO_CONVERGE", "ABORT_ON_ERROR", "NON_SHARED_INC",
    }  # fmt: skip
    configured = MigrationSettings(address="10.0.0.2")
    assert flags.parameters(asked, ["vda"], configured) == {
        "BANDWIDTH": 100, "BANDWIDTH_POSTCOPY": 50, "COMPRESSION": ["mt", "xbzrle"],
        "COMPRESSION_MT_LEVEL": 0, "COMPRESSION_MT_THREADS": 2, "COMPRESSION_MT_DTHREADS": 3,
        "COMPRESSION_XBZRLE_CACHE": 65536, "AUTO_CONVERGE_INITIAL": 20,
        "AUTO_CONVERGE_INCREMENT": 10, "MIGRATE_DISKS": ["vda"],
        "URI": "tcp://10.0.0.2",
    }  # fmt: skip


ISSUED = {"target": {"qemu-server": Certificate("kvm-02", "/etc/pki/qemu/server-cert.pem", "2030")}}


@pytest.mark.parametrize(
    ("target", "certificates", "name"),
    [
        ("hv2", {}, "hv2"),
        ("hv2", ISSUED, "kvm-02"),
        ("qemu+tls://10.9.0.2/system", ISSUED, "kvm-02"),
        ("qemu+tls://[fd00::2]/system", {}, "fd00::2"),
        ("qemu+ssh://root@10.9.0.2/system", {}, "hv2.example.com"),
        ("qemu+tcp://hv2/system", ISSUED, None),
    ],
)
def test_qemu_checks_the_certificate_of_the_targets_id(target, certificates, name):
    to = transport.parse(target)
    found = flags.tls_destination(to, "hv2.example.com", certificates)
    assert found == name
    configured = MigrationSettings(address="10.9.0.2")
    given = flags.parameters(options.parse({}), [], configured, destination=found)
    assert given.get("TLS_DESTINATION") == name


def test_a_tunnel_has_no_certificate_of_qemu():
    assert flags.tls_destination(transport.parse("hv2", tunnelled=True), "hv2", ISSUED) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "discard", "found"),
    [
        (11003000, 10009000, "unmap", ["vda"]),
        (11003000, 10008000, "unmap", []),
        (9000000, 11003000, "unmap", []),
        (11003000, 11003000, "", []),
    ],
)
def test_holes_stay_where_both_libvirts_and_the_disk_allow_it(ours, theirs, discard, found):
    guest = facts.guest(libvirt=ours, disks=[facts.disk(discard=discard)])
    zeroes = flags.discarding(guest, facts.host(libvirt=theirs), ["vda"])
    assert zeroes == found
    given = flags.parameters(options.parse({}), ["vda"], MigrationSettings(), zeroes)
    assert given.get("MIGRATE_DISKS_DETECT_ZEROES", []) == found


def test_nothing_asked_means_libvirts_own_choice():
    assert flags.parameters(options.parse({}), [], MigrationSettings()) == {}
    names = flags.flags(options.parse({"policy": "safe"}), transport.parse("hv2"), None, live=True)
    assert names == {
        "PEER2PEER",
        "LIVE",
        "TLS",
        "PERSIST_DEST",
        "UNDEFINE_SOURCE",
        "ABORT_ON_ERROR",
    }


def test_plaintext_and_tunnel_have_no_native_tls():
    asked = options.parse({})
    assert "TLS" not in flags.flags(asked, transport.parse("qemu+tcp://hv2/system"), None, True)
    tunnel = flags.flags(asked, transport.parse("hv2", tunnelled=True), None, True)
    assert "TUNNELLED" in tunnel
    assert "TLS" not in tunnel


@pytest.mark.parametrize(
    ("virt_type", "asked", "still"),
    [
        ("kvm", {}, False),
        ("qemu", {}, True),
        ("qemu", {"max_bandwidth": 5, "live": None}, True),
        ("qemu", {"live": True}, False),
        ("qemu", {"policy": "converge"}, False),
        ("qemu", {"postcopy": True}, False),
        ("qemu", {"max_downtime": 100}, False),
    ],
)
def test_an_emulated_guest_stands_still_unless_one_asks_for_what_only_a_live_one_has(
    virt_type, asked, still
):
    assert options.is_not_live(options.parse(asked, policy="postcopy"), virt_type) is still


def test_what_stands_still_needs_no_help_to_come_to_an_end():
    for policy in options.POLICIES:
        asked = options.parse({}, policy=policy)
        names = flags.flags(asked, transport.parse("hv2"), None, live=False)
        assert not names & {"LIVE", "POSTCOPY", "AUTO_CONVERGE"}


@pytest.mark.parametrize(
    ("given", "word"),
    [
        ({"max_bandwith": 3}, "unknown argument: max_bandwith"),
        ({"ssh": True}, r"qemu\+ssh"),
        ({"live": "yes"}, "live"),
        ({"max_downtime": -1}, "max_downtime"),
        ({"comp_mt_level": 10}, "comp_mt_level"),
        ({"copy_storage": "full"}, "copy_storage"),
        ({"copy_storage": True}, "copy_storage"),
        ({"comp_methods": "zip", "compressed": True}, "comp_methods"),
        ({"comp_methods": "mt"}, "compressed=True"),
        ({"policy": "brave"}, "policy"),
        ({"max_downtime": 0}, "max_downtime"),
        ({"copy_storage": 0}, "copy_storage 0 is not one of"),
        ({"copy_storage": ["all"]}, "copy_storage .* is not one of"),
        ({"tunnel": True, "postcopy": True}, "virt:tunnel"),
        ({"tunnel": True, "parallel_connections": 2}, "virt:tunnel"),
        ({"tunnel": True, "policy": "postcopy"}, "virt:tunnel"),
        ({"policy": "postcopy", "parallel_connections": 2}, "parallel_connections and postcopy"),
        ({"postcopy": True, "parallel_connections": 2}, "parallel_connections and postcopy"),
        ({"compressed": True, "parallel_connections": 2}, "compressed and parallel"),
        ({"comp_methods": 5, "compressed": True}, "comp_methods 5 is not a list"),
        ({"auto_converge_initial": 100}, "auto_converge_initial 100 is more than 99"),
        ({"auto_converge_increment": 100}, "auto_converge_increment 100 is more than 99"),
        ({"persistent": False}, "undefinesource=False"),
    ],
)
def test_wrong_arguments_are_named(given, word):
    with pytest.raises(InvalidInput, match=word):
        options.parse(given)


@pytest.mark.parametrize(
    "given",
    [{"parallel_connections": 2}, {"persistent": False, "undefinesource": False},
     {"copy_storage": None}, {"copy_storage": False}],
)  # fmt: skip
def test_what_goes_together_is_taken(given):
    assert options.parse(given)


@pytest.mark.parametrize(
    ("target", "uri", "scheme", "host"),
    [
        ("hv2", "qemu+tls://hv2/system", "tls", "hv2"),
        ("qemu://hv2/system", "qemu+tls://hv2/system", "tls", "hv2"),
        ("qemu+ssh://root@hv2:22/system", "qemu+ssh://root@hv2:22/system", "ssh", "hv2"),
        ("qemu+tcp://[fd00::2]/system", "qemu+tcp://[fd00::2]/system", "tcp", "fd00::2"),
    ],
)
def test_targets(target, uri, scheme, host):
    found = transport.parse(target)
    assert (found.uri, found.scheme, found.host) == (uri, scheme, host)


@pytest.mark.parametrize(
    "target",
    ["", None, "hv 2", "-oProxyCommand=x", "qemu+unix:///system", "qemu+tls:///system",
     "http://hv2/system", "qemu+libssh://hv2/system", "qemu+tls://hv2/session", "xen://hv2",
     "qemu+tls://a'b/system", "a/b"],
)  # fmt: skip
def test_wrong_targets_are_refused(target):
    with pytest.raises(InvalidInput, match="neither a host's name"):
        transport.parse(target)


@pytest.mark.parametrize(
    ("target", "tunnelled", "port", "words"),
    [
        ("hv2", False, None, "TLS"),
        ("hv2", True, None, "TLS, tunnelled"),
        ("qemu+ssh://root@hv2:2222/system", False, 2222, "SSH"),
        ("qemu+tcp://hv2/system", False, None, "TCP without encryption"),
    ],
)
def test_what_travels_how_is_told(target, tunnelled, port, words):
    found = transport.parse(target, tunnelled)
    assert (found.port, found.description) == (port, words)


def test_libvirt_is_told_what_is_copied_and_what_was_proven_shared():
    def names(*args):
        return flags.flags(options.parse({"policy": "safe"}), transport.parse("hv2"), *args)

    assert "NON_SHARED_DISK" in names("all", True)
    assert "NON_SHARED_INC" in names("incremental", True)
    assert "UNSAFE" not in names(None, True)
    assert "UNSAFE" in names(None, True, True), "our proof stands in for libvirt's own check"


@pytest.mark.parametrize(
    ("asked", "slowed"),
    [({"policy": "safe"}, False), ({"policy": "converge"}, True),
     ({"policy": "safe", "auto_converge": True}, True)],
)  # fmt: skip
def test_the_guest_is_slowed_when_that_is_asked_for_either_way(asked, slowed):
    found = flags.flags(options.parse(asked), transport.parse("hv2"), None, True)
    assert ("AUTO_CONVERGE" in found) == slowed


@pytest.mark.parametrize("asked", [{"policy": "postcopy"}, {"policy": "safe", "postcopy": True}])
def test_post_copy_is_made_possible_when_that_is_asked_for_either_way(asked):
    assert "POSTCOPY" in flags.flags(options.parse(asked), transport.parse("hv2"), None, True)


def test_no_more_is_sent_than_the_host_may_where_the_call_says_nothing():
    may = MigrationSettings(bandwidth=50)
    assert flags.parameters(options.parse({}), [], may) == {"BANDWIDTH": 50}
    asked = options.parse({"max_bandwidth": 7})
    assert flags.parameters(asked, [], may) == {"BANDWIDTH": 7}


def test_what_the_call_leaves_out_is_as_the_host_is_configured():
    assert options.parse({}).policy == "converge"
    found = options.parse({"max_bandwidth": None}, tunnel=True, policy="pause")
    assert (found.tunnel, found.policy, found.max_bandwidth) == (True, "pause", None)
    assert options.parse({"max_downtime": 5}).live is True, "it means a guest that runs on"
    both = options.parse({"comp_methods": ["mt", "xbzrle"], "compressed": True})
    assert both.comp_methods == ("mt", "xbzrle")
    assert options.parse({"comp_methods": None}).comp_methods == ()
    assert options.parse({"auto_converge_initial": 99}).auto_converge_initial == 99


def test_the_settings_of_a_hypervisor():
    given = {"virt:migration:bandwidth": 50, "virt:migration:timeout": 9}
    found = options.configured(lambda key, default=None: given.get(key, default))
    assert found == MigrationSettings("converge", bandwidth=50, timeout=9)
    given["virt:migration:bandwidth"] = 0
    with pytest.raises(InvalidInput, match="virt:migration:bandwidth"):
        options.configured(lambda key, default=None: given.get(key, default))
