"""The formula as Salt renders it for each distribution, against recorded golden files.

The grains were recorded by Salt's own code from each distribution's os-release file.
"""

import hashlib
import json
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from tests import golden
from tests.functional.conftest import REPOSITORY
from tests.functional.hostile import only

pytest.importorskip("salt")
from salt.loader.lazy import LazyLoader

from saltvirt.pki.authority import crl
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.pki.host import converge
from tests.functional.pki.test_pki_faults import give, host

GRAINS = Path(golden.__file__).parent / "formula/grains"
ONEDIR = "/opt/saltstack/salt/bin/python3.10"
INSTALL = "install --no-cache-dir libvirt-python"
BUNDLE = "/usr/lib/venv-salt-minion/bin/python"
DISTRIBUTIONS = sorted(path.stem for path in GRAINS.glob("*.yaml"))
# what is said once, before the parameters; what Salt adds for itself begins with __
SHARED = ["dnsmasq-base", "lvm2", "parted", "xorriso"]
UNSAID = {"state", "fun", "order", "name"}


@pytest.fixture(scope="module")
def highstate(tmp_path_factory):
    """Salt's renderer and compiler on this repository's formulas."""
    import salt.config
    import salt.state

    opts = salt.config.minion_config(None)
    opts.update(
        id="hv1",
        file_client="local",
        file_roots={"base": [str(REPOSITORY / "formulas"), str(tmp_path_factory.mktemp("srv"))]},
        pillar_roots={"base": []},
        cachedir=str(tmp_path_factory.mktemp("cache")),
        module_dirs=[str(REPOSITORY / "_modules")],
        states_dirs=[str(REPOSITORY / "_states")],
        grains={},
        extension_modules="",
    )
    with salt.state.HighState(opts, pillar_override={}) as state:
        yield state


@pytest.fixture
def render(highstate):
    """The states of an SLS in the order in which Salt would run them, as YAML."""

    def rendered(distribution, sls="libvirt", pillar=None, **grains):
        recorded = yaml.safe_load((GRAINS / f"{distribution}.yaml").read_text(encoding="utf-8"))
        seen = highstate.state.opts
        seen["grains"].clear()
        seen["grains"].update({"id": "hv1", "pythonexecutable": ONEDIR, **recorded, **grains})
        highstate.state.functions.pack["__pillar__"]["libvirt"] = pillar or {}
        highstate.building_highstate = type(highstate.building_highstate)()
        high, errors = highstate.render_highstate({"base": [sls]})
        assert errors == []
        chunks, errors = highstate.state.compile_high_data(high)
        assert errors == []
        return json.loads(json.dumps([plain(chunk) for chunk in chunks]))

    return rendered


def plain(chunk):
    told = {k: v for k, v in chunk.items() if k not in UNSAID and not k.startswith("__")}
    return {f"{chunk['state']}.{chunk['fun']}": chunk["name"], **told}


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
def test_each_distribution(render, distribution):
    text = yaml.safe_dump(render(distribution), sort_keys=False, width=100)
    golden.same(f"formula/{distribution}.yaml", text)


def packages(chunks):
    return next(chunk["pkgs"] for chunk in chunks if chunk.get("pkg.installed"))


def test_another_processor_has_its_own_emulator(render):
    assert "qemu-system-arm" in packages(render("debian-12", cpuarch="aarch64"))
    assert "qemu-arm" in packages(render("sles-15.6", cpuarch="aarch64"))
    assert not any("x86" in name for name in packages(render("debian-13", cpuarch="aarch64")))


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        (ONEDIR, {"cmd.run": f"/opt/saltstack/salt/salt-pip {INSTALL}"}),
        (BUNDLE, {"cmd.run": f"{BUNDLE} -m pip {INSTALL}"}),
        ("/usr/bin/python3", {"pkg.installed": "python3-libvirt"}),
    ],
)
def test_the_binding_goes_into_the_python_that_runs_salt(render, python, expected):
    chunks = render("debian-12", "libvirt.python", pythonexecutable=python)
    assert expected.items() <= chunks[-1].items()
    if "cmd.run" in expected:
        assert chunks[-1]["unless"] == f"{python} -c 'import libvirt'"


def test_a_requirement_may_have_quotes_of_its_own(render):
    named = "libvirt-python>=9; python_version>='3.10'"
    chunks = render("debian-12", "libvirt.python", {"python": {"requirement": named}})
    argv = shlex.split(chunks[-1]["cmd.run"])
    assert argv[-1] == named


@pytest.mark.parametrize(
    "distribution", ["opensuse-tumbleweed", "opensuse-leap-15.6", "sles-15.6", "sles-16.0"]
)
def test_suse_has_names_of_its_own(render, distribution):
    """Names that are capabilities of other packages count as missing unless they are resolved."""
    chunks = render(distribution, "libvirt.ha")
    by_id = {str(chunk["pkgs"]): chunk for chunk in chunks if chunk.get("pkgs")}
    assert "['python3-libvirt-python']" in by_id
    [libvirts] = [chunk for name, chunk in by_id.items() if "libvirt-client" in name]
    assert libvirts["resolve_capabilities"] is True
    built = render(distribution, "libvirt.python", pythonexecutable=ONEDIR)
    [build] = [chunk for chunk in built if "pkg-config" in chunk.get("pkgs", ())]
    assert build["resolve_capabilities"] is True


@pytest.mark.parametrize("distribution", ["opensuse-tumbleweed", "fedora-42", "rocky-9"])
def test_the_exporters_library_has_the_distributions_name(render, distribution):
    chunks = render(distribution, "libvirt.metrics", pythonexecutable="/usr/bin/python3")
    assert "python3-prometheus_client" in [chunk.get("pkg.installed") for chunk in chunks]


BY_PIP = "install --no-cache-dir --disable-pip-version-check --no-deps --force-reinstall"
WHEEL = "salt_virt-0.9.0-py3-none-any.whl"


def by_pip(render, source, sls="libvirt.python", python=ONEDIR):
    """The states that come of a source of Salt Virt, by their ids' first words."""
    chunks = render("debian-12", sls, {"python": {"salt_virt": source}}, pythonexecutable=python)
    plain = render("debian-12", sls, pythonexecutable=python)
    return [chunk for chunk in chunks if chunk not in plain]


@pytest.mark.parametrize(
    ("source", "given", "wanted"),
    [
        ("salt-virt==0.9.0", "salt-virt==0.9.0", "'==0.9.0 '"),
        ("salt-virt", "salt-virt", "=="),
        (f"/srv/{WHEEL}", f"/srv/{WHEEL}", WHEEL),
        (f"https://x/{WHEEL}?a=1", f"'https://x/{WHEEL}?a=1'", WHEEL),
        ("it's", "'it'\"'\"'s'", "=="),
    ],
)
def test_salt_virt_is_installed_by_pip_where_pillar_says_so(render, source, given, wanted):
    installed, restarted = by_pip(render, source)
    assert installed["cmd.run"] == f"/opt/saltstack/salt/salt-pip {BY_PIP} {given}"
    assert installed["unless"].startswith(f"{ONEDIR} -c ")
    assert installed["unless"].endswith(f" | grep -qF {wanted}")
    assert installed["reload_modules"] is True
    assert "systemctl try-restart salt-minion" in restarted["cmd.run"]
    assert restarted["onchanges"] == [{"cmd": "libvirt_salt_virt"}]


def test_a_wheel_that_the_master_serves_is_known_by_its_hash(render, highstate):
    Path(highstate.state.opts["file_roots"]["base"][1], WHEEL).write_bytes(b"a wheel")
    digest = hashlib.sha256(b"a wheel").hexdigest()
    fetched, installed, _ = by_pip(render, f"salt://{WHEEL}", python=BUNDLE)
    assert fetched["file.managed"] == f"/var/cache/salt-virt/wheels/{WHEEL}"
    assert fetched["source"] == f"salt://{WHEEL}"
    given = f"'file://{fetched['file.managed']}#sha256={digest}'"
    assert installed["cmd.run"] == f"{BUNDLE} -m pip {BY_PIP} {given}"
    assert installed["unless"].endswith(f" | grep -qF {digest}")
    assert installed["require"] == [{"file": "libvirt_salt_virt_wheel"}]


def test_the_minion_restarts_when_all_else_is_done(render):
    chunks = render("debian-12", "libvirt", {"python": {"salt_virt": "salt-virt"}})
    assert "try-restart salt-minion" in chunks[-1]["cmd.run"]
    assert functions(chunks).index("virt.keys") > chunks.index(by_pip(render, "salt-virt")[0])


@pytest.mark.parametrize("version", [[3006, 28], [3007, 14]])
def test_salts_own_virt_of_before_3008_gets_no_part_of_it(render, version, monkeypatch):
    """It goes on with its own in the job that installs ours: keys that everybody can read."""
    has = LazyLoader.__contains__
    monkeypatch.setattr(
        LazyLoader, "__contains__", lambda of, key: key != "virt.versions" and has(of, key)
    )
    pillar = {"python": {"salt_virt": "salt-virt"}}
    how = {"saltversioninfo": version, "pythonexecutable": ONEDIR}
    chunks = render("debian-12", "libvirt", pillar, **how)
    assert not [name for name in functions(chunks) if name.startswith("virt.")]
    [rest] = [chunk for chunk in chunks if "state.apply" in chunk.get("cmd.run", "")]
    assert rest["cmd.run"].startswith(
        f"{ONEDIR} -c 'import salt.scripts; salt.scripts.salt_call()'"
    )
    parts = rest["cmd.run"].partition("state.apply ")[2].split()[0].split(",")
    assert {"id": "libvirt_salt_virt"} in rest["require"]
    apart = ["libvirt.package", "libvirt.python", *parts]
    told = [json.dumps(chunk) for part in apart for chunk in render("debian-12", part, **how)]
    whole = [json.dumps(chunk) for chunk in render("debian-12", "libvirt", **how)]
    assert sorted(set(told)) == sorted(set(whole))
    assert "try-restart salt-minion" in chunks[-1]["cmd.run"]


def test_pip_keeps_out_of_the_distributions_python(render):
    [refused] = by_pip(render, "salt-virt", python="/usr/bin/python3")
    assert "pip does not install into" in refused["test.fail_without_changes"]


def test_pillar_has_the_last_word(render):
    wished = {"daemon": "modular", "packages": ["a"], "arch_packages": {"x86_64": []}}
    chunks = render("debian-12", pillar=wished)
    assert packages(chunks) == ["a", *SHARED]
    assert "virtproxyd-tls.socket" in [chunk.get("service.running") for chunk in chunks]


def test_networks_of_libvirt_are_what_pillar_lists(render):
    assert render("debian-12", "libvirt.networks") == []
    wished = {"networks": {"inner": {"forward": "nat", "ipv4_config": {"cidr": "10.9.0.0/24"}}}}
    made = render("debian-12", "libvirt.networks", wished)[-1]
    assert made["virt.network_running"] == "inner"
    assert made["ipv4_config"] == {"cidr": "10.9.0.0/24"}


def test_a_network_and_a_bridge_need_no_parameters(render):
    made = render("debian-12", "libvirt.networks", {"networks": {"inner": None}})[-1]
    assert made["virt.network_running"] == "inner"
    [_first, more] = render("debian-12", "libvirt.bridge", {"network": {"bridges": {"br1": None}}})
    assert (more["virt.bridge"], more["interface"]) == ("br1", None)


def test_hosts_of_the_firewall_are_pillars_or_the_masters(render):
    def hosts(pillar):
        return render("debian-12", "libvirt.firewall", {"firewall": pillar})[0]["hosts"]

    assert hosts({}) is None
    assert hosts({"hosts": ["10.0.0.0/24", "hv2"]}) == ["10.0.0.0/24", "hv2"]
    assert render("debian-12", "libvirt.firewall", {"firewall": {"manage": False}}) == []


def test_a_mine_that_names_nobody_shuts_nobody_out(render, monkeypatch):
    mine = {"target": "hv*"}
    told = {"hv1": ["10.0.0.11"], "hv2": ["10.0.0.12"]}
    get = LazyLoader.__getitem__
    monkeypatch.setattr(
        LazyLoader,
        "__getitem__",
        lambda of, key: (lambda *_args: told) if key == "mine.get" else get(of, key),
    )
    [made] = render("debian-12", "libvirt.firewall", {"firewall": {"mine": mine}})
    assert made["hosts"] == ["10.0.0.11", "10.0.0.12"]
    told = {}
    [refused] = render("debian-12", "libvirt.firewall", {"firewall": {"mine": mine}})
    assert refused["test.fail_without_changes"].startswith("the mine has no network.ip_addrs of")


@pytest.mark.parametrize(
    ("pillar", "reason"),
    [
        ("x", 'pillar libvirt: a mapping, not "x"'),
        ({"netwrok": {"manage": False}}, "pillar libvirt: unknown netwrok; known: daemon, "),
        ({"metrics": {"port": "9177"}}, 'libvirt:metrics:port: a number, not "9177"'),
        ({"metrics": {"every_s": True}}, "libvirt:metrics:every_s: a number, not true"),
        ({"firewall": {"mine": "hv*"}}, 'libvirt:firewall:mine: a mapping, not "hv*"'),
        ({"firewall": {"mine": {"tgt_type": "glob"}}}, "firewall:mine: target is missing"),
        ({"network": {"manage": "false"}}, 'libvirt:network:manage: true or false, not "false"'),
        ({"network": {"manage": "no"}}, 'libvirt:network:manage: true or false, not "no"'),
        ({"firewall": {"manage": 0}}, "libvirt:firewall:manage: true or false, not 0"),
        ({"python": {"manage": "False"}}, "libvirt:python:manage: true or false"),
        ({"network": {"manag": False}}, "libvirt:network: unknown manag; known: bridge, manage,"),
        ({"network": ["br0"]}, "libvirt:network: a mapping, not ["),
        ({"packages": "qemu"}, 'libvirt:packages: a list, not "qemu"'),
        ({"firewall": {"tls": 16514}}, "libvirt:firewall:tls: a list, not 16514"),
        ({"tls": {"allowed": "CN=hv*"}}, "libvirt:tls:allowed: true or false or a list, not"),
        ({"daemon": "modluar"}, "libvirt:daemon: one of monolithic, modular, not"),
        ({"qemu": {"user": None}}, "user of /etc/libvirt/qemu.conf: a number, a text or a list"),
        ({"config": {"max_clients": 1.5}}, "max_clients of /etc/libvirt/libvirtd.conf: a number"),
    ],
)
def test_pillar_that_means_nothing_is_refused(render, caplog, pillar, reason):
    with pytest.raises(AssertionError):
        render("debian-12", "libvirt", pillar)
    assert reason in caplog.text


def test_a_key_of_pillar_without_a_value_is_the_default(render):
    sections = ("network", "firewall", "tls", "python", "images", "metrics", "ha", "ovs", "keys")
    empty = {**dict.fromkeys((*sections, "config", "qemu", "packages", "networks", "daemon"))}
    inner = {"network": {"bridge": None, "bridges": None}, "images": {"path": None}}
    for sls in ("libvirt", "libvirt.ha", "libvirt.metrics", "libvirt.clean"):
        expected = render("debian-12", sls)
        assert render("debian-12", sls, empty) == expected
        assert render("debian-12", sls, inner) == expected


def test_libvirts_files_have_numbers_for_true_and_false(render):
    """By any other word the daemon does not start."""
    pillar = {"qemu": {"a": True, "b": False, "c": 7, "d": "text", "e": ["x"]}}
    written = [chunk.get("repl") for chunk in render("debian-12", "libvirt.config", pillar)]
    assert written[2:-1] == ["a = 1", "b = 0", "c = 7", 'd = "text"', 'e = ["x"]']


def test_the_daemon_reads_its_settings_also_when_they_are_applied_alone(render):
    chunks = render("rocky-9", "libvirt.config", {"qemu": {"user": "qemu"}})
    reads = chunks[-1]
    assert reads["cmd.run"] == "systemctl try-restart virtproxyd.service virtqemud"
    assert reads["onchanges"] == [
        {"file": "libvirt_config_verifies"},
        {"file": "libvirt_config_/etc/libvirt/qemu.conf_user"},
    ]


def test_clean_stops_the_agent_of_high_availability(render):
    chunks = render("debian-12", "libvirt.clean")
    stopped = {"service.dead": "salt-virt-ha", "enable": False}
    [place] = [n for n, chunk in enumerate(chunks) if stopped.items() <= chunk.items()]
    assert functions(chunks)[:place] == ["virt.no_guests"]


def test_clean_ends_the_exporter_that_metrics_made(render):
    [made] = [
        chunk["file.managed"] for chunk in render("debian-12", "libvirt.metrics")
        if chunk.get("file.managed", "").endswith("virt_exporter.conf")
    ]  # fmt: skip
    chunks = render("debian-12", "libvirt.clean")
    gone = {"file.absent": made, "require": [{"virt": "libvirt_clean_idle"}]}
    assert gone in chunks
    assert "try-restart salt-minion" in chunks[-1]["cmd.run"]
    assert chunks[-1]["onchanges"] == [{"file": "libvirt_clean_exporter"}]


def test_clean_takes_away_what_apply_installs_but_what_others_may_need(render):
    for distribution in ("debian-12", "debian-13", "rocky-9", "sles-15.6"):
        chunks = render(distribution, "libvirt.clean")
        assert chunks[0] == {"virt.no_guests": "libvirt_clean_idle", "failhard": True}
        removed = next(chunk["pkgs"] for chunk in chunks if "pkg.removed" in chunk)
        installed = packages(render(distribution, "libvirt.package"))
        assert set(installed) - set(removed) == set(SHARED) & set(installed)


def test_clean_removes_what_keys_placed_and_leaves_the_ca_of_others(render, tmp_path):
    place = tmp_path / "it's here"
    steps = render("debian-12", "libvirt.clean", {"keys": {"basepath": str(place)}})
    steps = [one for one in steps if "file.absent" in one]
    steps = [one for one in steps if not one["file.absent"].endswith("virt_exporter.conf")]
    assert all(one["file.absent"].startswith(f"{place}/") for one in steps)

    def placed():
        converge.converge(host(tmp_path / "ours", place))
        return {path for path in place.rglob("*") if path.is_file()}

    def cleaned():
        for one in steps:
            check = one.get("onlyif", "true")
            if not subprocess.run(["sh", "-c", check], check=False).returncode:
                Path(one["file.absent"]).unlink(missing_ok=True)
        return {path for path in place.rglob("*") if path.is_file()}

    for folder in ("ours", "others"):
        give(tmp_path / folder, "hv2")
        crl.revoke(CertificateStore(tmp_path / folder), "hv2")
    ca = {place / "CA/cacert.pem", place / "CA/cacrl.pem"}
    assert ca < placed()
    assert cleaned() == set()
    placed()
    other = give(tmp_path / "others")
    (place / "CA/cacrl.pem").write_text(other["libvirt.cacrl.pem"])
    assert cleaned() == {place / "CA/cacrl.pem"}
    placed()
    for path in ca:
        path.write_text(other[f"libvirt.{path.name}"])
    assert ca <= cleaned()  # beside the list that was set aside


def test_more_bridges_are_made_after_the_first_and_taken_away_before_it(render):
    network = {"bridges": {"br200": {"vlan": 200, "interface": "eth1"}, "br100": {"vlan": 100}}}
    made = [
        chunk
        for chunk in render("debian-12", pillar={"network": network})
        if "virt.bridge" in chunk
    ]
    first = [{"virt": "libvirt_bridge"}]
    assert made == [
        {"virt.bridge": "br0", "interface": None},
        {"virt.bridge": "br100", "interface": None, "vlan": 100, "require": first},
        {"virt.bridge": "br200", "interface": "eth1", "vlan": 200, "require": first},
    ]
    clean = render("debian-12", "libvirt.clean", pillar={"network": network})
    gone = [chunk["virt.bridge_absent"] for chunk in clean if "virt.bridge_absent" in chunk]
    assert gone == ["br100", "br200", "br0"]
    unmanaged = render("debian-12", pillar={"network": {**network, "manage": False}})
    assert not [chunk for chunk in unmanaged if "virt.bridge" in chunk]


@pytest.mark.parametrize(
    ("distribution", "package"),
    [
        *(("debian-12", "openvswitch-switch"), ("ubuntu-24.04", "openvswitch-switch")),
        *(("fedora-42", "openvswitch"), ("sles-15.6", "openvswitch")),
    ],
)
def test_open_vswitch_is_installed_and_runs_before_its_bridge(render, distribution, package):
    network = {"interface": "eth0", "bridges": {"ovs0": {"type": "ovs", "interface": "eth2"}}}
    chunks = render(distribution, "libvirt.bridge", pillar={"network": network})
    assert chunks[0] == {"virt.bridge": "br0", "interface": "eth0"}
    assert chunks[1] == {"pkg.installed": "libvirt_ovs_packages", "pkgs": [package]}
    assert (chunks[2]["service.running"], chunks[2]["enable"]) == (package, True)
    wants = [{"virt": "libvirt_bridge"}, {"service": "libvirt_ovs_service"}]
    assert chunks[3] == {
        **{"virt.bridge": "ovs0", "interface": "eth2", "type": "ovs"},
        "require": wants,
    }
    bare = {"interface": "eth0", "bridges": {"ovs0": {"type": "ovs"}}}
    chunks = render(distribution, "libvirt.bridge", pillar={"network": bare})
    assert chunks[3]["interface"] is None


# -- pillar that is not what one expects --------------------------------------------------

ODD = ["on", "a: b", "it's", 'a"b', "\\1", "ü😀", "x\nx:\n  cmd.run:\n    - name: id\n", "123",
       "1e3", "null", "- a", "# a", "{{ 1 }}", "a,b", "&a *a", "!!python/none", "a&b<c>",
       "\u2028\x7f", "x" * 300]  # fmt: skip


def pillar_of(odd):
    """That word at each place where a text of pillar goes into a state."""
    return {
        "network": {"bridge": odd, "bridges": {odd: {"type": "ovs", "tag": odd}}},
        "networks": {odd: {"forward": odd}},
        "images": {"path": odd, "mode": odd},
        "package_options": {odd: odd},
        "python": {"system_package": odd, "build_options": {odd: odd}},
        "packages": [odd],
        "config": {odd: odd},
        "qemu": {odd: [odd]},
        "tls": {"allowed": [odd]},
        "keys": {odd: odd},
        "ovs": {"packages": [odd], "service": odd},
        "firewall": {"kind": odd, "hosts": [odd], "tls": [odd]},
    }


def functions(chunks):
    return [next(iter(chunk)) for chunk in chunks]


@pytest.fixture(scope="module")
def expected():
    return {}


@pytest.mark.parametrize(
    ("sls", "python"),
    [("libvirt", ONEDIR), ("libvirt.python", "/usr/bin/python3"), ("libvirt.clean", ONEDIR)],
)
@pytest.mark.parametrize("odd", only(*ODD[:7], of=ODD))
def test_what_pillar_says_is_data(render, expected, sls, python, odd):
    """The states are those of a plain word, and the odd one is in them as it was given."""
    if sls not in expected:
        expected[sls] = render("debian-12", sls, pillar_of("plain"), pythonexecutable=python)
    found = render("debian-12", sls, pillar_of(odd), pythonexecutable=python)
    assert functions(found) == functions(expected[sls])
    for one, plain_one in zip(found, expected[sls], strict=True):
        for key, value in plain_one.items():
            if value in ("plain", ["plain"]):
                assert one[odd if key == "plain" else key] in (odd, [odd])
            if key == "repl" and "plain" in str(value):
                text = str(one[key]).replace("\\\\", "\\")
                assert json.dumps(odd, ensure_ascii=False) in text


def of_metrics(render, **more):
    """The states of libvirt.metrics, by what they do."""
    found = render("debian-12", "libvirt.metrics", {"metrics": {"address": "10.0.0.11"}}, **more)
    before = render("debian-12", "libvirt.python", **more)
    return {next(iter(one)): one for one in found if one not in before}


def test_the_exporter_is_set_up_by_name_alone(render):
    assert "virt_exporter" not in str(render("debian-12"))
    library, engine, restarts = render(
        "debian-12", "libvirt.metrics", {"metrics": {"address": "10.0.0.11"}}
    )[-3:]
    pip = "/opt/saltstack/salt/salt-pip install --no-cache-dir --disable-pip-version-check"
    assert library["cmd.run"] == f"{pip} prometheus-client"
    assert engine["file.managed"].endswith("/minion.d/virt_exporter.conf")
    told = {"address": "10.0.0.11", "port": 9177, "tls": False, "every_s": 60}
    assert yaml.safe_load(engine["contents"]) == {"engines": [{"virt_exporter": told}]}
    assert "try-restart salt-minion" in restarts["cmd.run"]


@pytest.mark.parametrize(
    ("listed", "state"),
    [
        ("engines: [libvirt_events]", "test.fail_without_changes"),
        ("engines:\n- libvirt_events\n- virt_exporter: {port: 1}", None),
        ("#engines: []", "file.managed"),
    ],
)
def test_engines_of_the_minions_main_file_stay(highstate, render, tmp_path, listed, state):
    """A list in minion.d would replace it."""
    opts, path = highstate.state.opts, tmp_path / "minion"
    before = opts["conf_file"]
    path.write_text(f"master: m\n{listed}\n")
    opts["conf_file"] = str(path)
    try:
        states = of_metrics(render)
    finally:
        opts["conf_file"] = before
    assert {*states} - {"cmd.run"} == ({state} if state else set())
    if state == "test.fail_without_changes":
        assert str(path) in states[state][state]
