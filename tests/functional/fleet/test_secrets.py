"""A host requests the secret arguments of a guest from its master, and creates the guest with
them."""

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("salt")

from saltvirt import errors
from saltvirt.fleet import authorization, proof
from tests.functional.conftest import load_with_folders
from tests.functional.pki_master import Master

SECRET = {"graphics": {"type": "vnc", "password": "hush"}}


@pytest.fixture
def host(conn, tmp_path):
    """(the master, the modules of hv1 that has it as its master)."""
    master = Master(tmp_path / "master", hosts="hv*").accept("hv1")
    modules = load_with_folders(tmp_path)
    modules.opts["id"] = "hv1"

    def ext(external, unmask=None):
        return master.pillar("hv1", ext=external)

    modules["pillar.ext"] = ext
    return master, modules


def init(modules, **more):
    return modules["virt.init"](
        "web1", 1, 64, hypervisor="test", seed=False, start=False, disk=None, nic=None,
        approve_key=False, from_master=True, **more,
    )  # fmt: skip


def test_it_is_made_with_what_the_master_keeps_for_it(host, conn):
    import libvirt

    master, modules = host
    with authorization.Authorizations(master.opts).temporary("hv1", "web1", secret=SECRET):
        assert "hush" not in repr(init(modules))
    xml = conn.lookupByName("web1").XMLDesc(libvirt.VIR_DOMAIN_XML_SECURE)
    assert "passwd='hush'" in xml


def test_without_an_operation_nothing_is_made(host, conn):
    _, modules = host
    with pytest.raises(errors.VirtError, match="the master does not release the secrets of web1"):
        init(modules)
    with pytest.raises(errors.VirtError, match="the master does not release the secrets of web2"):
        modules["virt.clone"]("test", "web2", from_master=True)
    assert [dom.name() for dom in conn.listAllDomains()] == ["test"]


def test_a_host_answers_signed(host, tmp_path):
    """And its errors too, in the words that Salt has for them."""
    from tests.unit.fleet.test_proof import make_key, travelled

    private, public = make_key()
    (tmp_path / "minion.pem").write_bytes(private)
    _, modules = host
    own = getattr(modules[proof.FUNCTION], "func", modules[proof.FUNCTION]).__globals__["__opts__"]
    own["pki_dir"], own["id"] = str(tmp_path), "hv1"

    def ask(fun, **kwarg):
        found = travelled(modules[proof.FUNCTION](fun, kwarg, __pub_jid="7"))
        return proof.verify("hv1", "7", fun, found, public)

    assert ask("virt.vm_state") == {"return": {"test": "running"}, "retcode": 0}
    assert ask("virt.start", name="none")["return"].startswith("ERROR: ")
    assert ask("virt.start", name="none")["retcode"] == 1
    assert "unknown argument" in ask("virt.vm_state", x=1)["return"]
    with pytest.raises(errors.VirtError, match="must be a function of virt"):
        modules[proof.FUNCTION]("cmd.run", {"cmd": "id"})
