import pytest

from saltvirt.answers.migration import Certificate
from saltvirt.migration import transport
from saltvirt.migration.checks import trust


def certificate(host, use, wrong=None):
    return Certificate(host, f"/etc/pki/{use}.pem", "2027-01-01", wrong)


ALL = {
    end: {use: certificate(host, use) for use in ("client", "server", "qemu-client", "qemu-server")}
    for end, host in (("source", "hv1"), ("target", "hv2"))
}


@pytest.mark.parametrize(
    ("target", "tunnelled", "files"),
    [
        ("hv2", False, ["client", "qemu-client", "server", "qemu-server"]),
        ("hv2", True, ["client", "server"]),
        ("qemu+ssh://hv2/system", False, ["qemu-client", "qemu-server"]),
        ("qemu+tcp://hv2/system", False, []),
    ],
)
def test_only_those_count_that_the_move_needs(target, tunnelled, files):
    found = trust.required(ALL, transport.parse(target, tunnelled))
    assert [one.file for one in found] == [f"/etc/pki/{name}.pem" for name in files]


def test_one_that_does_not_hold_is_named_with_its_host():
    given = {
        "source": {},
        "target": {"qemu-server": certificate("hv2", "s", "expired on 2026-01-01")},
    }
    assert list(trust.invalid_reasons(given, transport.parse("hv2"))) == [
        "/etc/pki/s.pem on hv2 expired on 2026-01-01: apply libvirt.keys there"
    ]
    assert list(trust.invalid_reasons(given, transport.parse("hv2", tunnelled=True))) == []


def test_certificates_that_hold_are_no_reason():
    assert list(trust.invalid_reasons(ALL, transport.parse("hv2"))) == []
