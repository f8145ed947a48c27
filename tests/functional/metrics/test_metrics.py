"""The exporter over HTTP and TLS, with a private libvirtd."""

import contextlib
import gc
import gzip
import http.client
import json
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

import pytest

pytest.importorskip("libvirt")
pytest.importorskip("prometheus_client")

from saltvirt import errors, settings
from saltvirt.metrics.exporter import options, serve, server, source
from saltvirt.metrics.exporter.readers import PeriodicReader
from saltvirt.metrics.host import read
from saltvirt.metrics.host.serve import HostMetrics
from saltvirt.metrics.model import family
from saltvirt.pki.authority import ca
from saltvirt.pki.authority import policy as certificates
from saltvirt.pki.authority.store import CertificateStore
from saltvirt.system import tls_listener
from tests.clock import until
from tests.functional.conftest import REPOSITORY
from tests.functional.daemon import Daemon, libvirtd  # noqa: F401 - a fixture
from tests.unit.metrics.exporter.test_text import parsed, value

DOMAIN = """<domain type='qemu'><name>{name}</name><memory>65536</memory><vcpu>2</vcpu>
<os><type arch='x86_64'>hvm</type></os><devices>{devices}</devices></domain>"""
HOSTILE = '"q} 1 \\n & ünï'


def config(uri, tmp_path, **more):
    told = {"virt:connection:uri": uri, "virt:images": str(tmp_path / "images"),
            "virt:connection:timeout": 60, **more}  # fmt: skip
    return lambda key, default=None: told.get(key, default)


def host(uri, tmp_path, stop=None, **more):
    found = HostMetrics(config(uri, tmp_path, **more), "hv1", dict, stop or threading.Event())
    found._guests.timeout_s = 60
    return found


def found(one):
    looks = one.readers(60)
    for look in looks.values():
        look.read_once()
    return parsed(source.families({"host": one.name}, one.now, looks))


@pytest.fixture
def domains(libvirtd):  # noqa: F811
    """Defines and starts guests of the daemon; they are gone after the test."""
    import libvirt

    conn = libvirt.open(libvirtd.uri)
    made = []

    def make(name, devices="", start=False):
        dom = conn.defineXML(DOMAIN.format(name=name, devices=devices))
        made.append(dom)
        if start:
            dom.create()
        return dom

    yield make
    for dom in made:
        with contextlib.suppress(libvirt.libvirtError):
            dom.destroy()
        dom.undefine()
    conn.close()


def escaped(text):
    return text.replace("&", "&amp;").replace('"', "&quot;")


def test_guests_of_a_real_libvirt(libvirtd, domains, tmp_path):  # noqa: F811
    disk = tmp_path / "d.raw"
    disk.write_bytes(b"\0" * 1024**2)
    device = f"<disk type='file'><source file='{disk}'/><target dev='vda' bus='virtio'/></disk>"
    running = domains("metrics1", device, start=True)
    off = domains(escaped(HOSTILE))
    said = found(host(libvirtd.uri, tmp_path))
    assert value(said, "libvirt_up", host="hv1") == 1
    uuid = running.UUIDString()
    assert value(said, "guest_state", guest="metrics1", uuid=uuid, state="running") == 1
    assert value(said, "guest_state", guest=HOSTILE, uuid=off.UUIDString(), state="shutdown") == 1
    assert value(said, "guest_cpu_seconds_total", guest="metrics1") > 0
    assert value(said, "guest_memory_bytes", guest="metrics1") == 64 * 1024**2
    assert value(said, "guest_memory_resident_bytes", guest="metrics1") > 0
    assert value(said, "guest_disk_capacity_bytes", guest="metrics1", device="vda") == 1024**2
    assert value(said, "host_vcpus_promised", host="hv1") == 4
    assert value(said, "part_up", part="capacity") == value(said, "part_up", part="files") == 1
    assert value(said, "image_cache_images") == 0


def test_one_bulk_call_with_no_wait(libvirtd, domains, tmp_path, monkeypatch):  # noqa: F811
    import libvirt

    domains("metrics2")
    calls = []
    whole = libvirt.virConnect.getAllDomainStats

    def counted(conn, stats=0, flags=0):
        calls.append(flags)
        return whole(conn, stats, flags)

    monkeypatch.setattr(libvirt.virConnect, "getAllDomainStats", counted)
    monkeypatch.setattr(libvirt.virDomain, "XMLDesc", None)
    assert read.read_guests(settings.Connection(libvirtd.uri), "hv1")
    assert calls == [libvirt.VIR_CONNECT_GET_ALL_DOMAINS_STATS_NOWAIT]


def test_a_guest_that_hangs_delays_nobodys_series(libvirtd, domains, tmp_path):  # noqa: F811
    """Its QEMU is stopped, and another client waits for it in libvirt."""
    import libvirt

    hung, well = domains("metrics3", start=True), domains("metrics4", start=True)
    pid = subprocess.run(
        ["pgrep", "-f", "guest=metrics3,"], capture_output=True, text=True, check=True
    ).stdout.split()[0]
    subprocess.run(["kill", "-STOP", pid], check=True)
    other = libvirt.open(libvirtd.uri)
    waits = threading.Thread(target=lambda: other.lookupByName("metrics3").memoryStats())
    waits.start()
    try:
        one = host(libvirtd.uri, tmp_path)
        for _ in range(3):
            said = parsed(one.now())
            assert value(said, "libvirt_up") == 1
            assert value(said, "guest_memory_bytes", guest="metrics4") == 64 * 1024**2
            assert value(said, "guest_state", guest="metrics3", state="running") == 1
        assert waits.is_alive()
    finally:
        subprocess.run(["kill", "-CONT", pid], check=True)
        waits.join()
        other.close()
    assert (hung.isActive(), well.isActive()) == (1, 1)


def test_a_libvirt_that_is_gone_or_hangs_is_0_and_the_rest_is_there(tmp_path):
    one = host(f"qemu+unix:///system?socket={tmp_path}/none", tmp_path)
    said = found(one)
    assert value(said, "libvirt_up", host="hv1") == 0
    assert value(said, "part_up", part="capacity") == 0
    assert value(said, "part_up", part="files") == 1
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(f"{tmp_path}/deaf")
        deaf.listen(9)
        one = host(f"qemu+unix:///system?socket={tmp_path}/deaf", tmp_path,
                   **{"virt:connection:timeout": 1})  # fmt: skip
        assert value(parsed(one.now()), "libvirt_up") == 0


def test_it_comes_back_with_libvirt(tmp_path):
    pytest.importorskip("libvirt")
    daemon = Daemon()
    try:
        daemon.wait()
        one = host(daemon.uri, tmp_path)
        assert value(parsed(one.now()), "libvirt_up") == 1
    finally:
        daemon.stop()
    assert value(parsed(one.now()), "libvirt_up") == 0


def test_where_storage_is_silent_disks_on_it_are_left_out(libvirtd, domains, tmp_path, monkeypatch):  # noqa: F811
    disk = tmp_path / "d.raw"
    disk.write_bytes(b"\0" * 1024**2)
    domains("metrics5", f"<disk type='file'><source file='{disk}'/><target dev='vda'/></disk>",
            start=True)  # fmt: skip
    monkeypatch.setattr(read, "_all_storage_answers", lambda: False)
    said = parsed(host(libvirtd.uri, tmp_path).now())
    assert value(said, "guest_disk_capacity_bytes", guest="metrics5") == 1024**2
    monkeypatch.setattr(read.stats.answers, "disks", lambda *_: False)
    said = parsed(host(libvirtd.uri, tmp_path).now())
    assert value(said, "guest_memory_bytes", guest="metrics5") == 64 * 1024**2
    assert "saltvirt_guest_disk_capacity_bytes" not in said


def test_another_library_on_disk_ends_it(monkeypatch, tmp_path):
    import saltvirt

    stop = threading.Event()
    one = host("test:///default", tmp_path, stop)
    monkeypatch.setattr(saltvirt, "stale", lambda: True)
    assert value(parsed(one.now()), "libvirt_up") == 0
    assert stop.is_set()
    again = threading.Event()
    PeriodicReader(one.reads["capacity"], 60, "capacity").begin(again)
    assert again.wait(60)


@contextlib.contextmanager
def served(families=(), tls=None):
    with server.Exporter("127.0.0.1", 0, lambda: iter(families), tls) as one:
        thread = threading.Thread(target=one.serve_forever, daemon=True)
        thread.start()
        try:
            yield one
        finally:
            one.shutdown()
            thread.join()


def get(one, path="/metrics", scheme="http", context=None, **headers):
    asked = urllib.request.Request(f"{scheme}://127.0.0.1:{one.server_address[1]}{path}")
    for name, text in headers.items():
        asked.add_header(name.replace("_", "-"), text)
    return urllib.request.urlopen(asked, timeout=60, context=context)


NUMBERS = [family.single_gauge("n", "A number.", {"guest": HOSTILE}, 1)]


def test_http():
    with served(NUMBERS) as one:
        plain = get(one)
        assert plain.headers["Content-Type"].startswith("text/plain")
        assert b"saltvirt_n" in plain.read()
        packed = get(one, Accept_Encoding="gzip", Accept="application/openmetrics-text")
        assert packed.headers["Content-Type"].startswith("application/openmetrics-text")
        assert gzip.decompress(packed.read()).endswith(b"# EOF\n")
        with pytest.raises(urllib.error.HTTPError) as exc:
            get(one, "/etc/passwd")
        assert exc.value.code == 404


def test_who_says_nothing_hinders_nobody_and_too_many_are_sent_away():
    with served(NUMBERS) as one, contextlib.ExitStack() as several:
        at = ("127.0.0.1", one.server_address[1])
        for _ in range(server._MAX_CONNECTIONS - 1):
            several.enter_context(socket.create_connection(at))
        assert b"saltvirt_n" in get(one).read()
        silent = [several.enter_context(socket.create_connection(at)) for _ in range(20)]
        for each in silent:
            each.settimeout(60)
        assert silent[-1].recv(1) == b""


def test_who_goes_on_slowly_keeps_no_place_for_ever(monkeypatch):
    monkeypatch.setattr(server, "_MAX_DURATION_S", 0.2)
    with served(NUMBERS) as one:
        line = socket.create_connection(("127.0.0.1", one.server_address[1]))
        line.settimeout(0.05)
        line.sendall(b"GET /metrics HTTP/1.1\r\nX: ")

        def is_cut():
            try:
                line.sendall(b"x")
                return line.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        with line:
            until(is_cut, "cut off")


def test_an_address_that_is_taken_is_one_line():
    with served() as one, pytest.raises(errors.OperationFailed, match="cannot listen on") as exc:
        server.Exporter("127.0.0.1", one.server_address[1], list)
    assert "\n" not in str(exc.value)
    with pytest.raises(errors.OperationFailed, match="TLS by /none and /none"):
        server.Exporter("127.0.0.1", 0, list, ("/none", "/none"))


@pytest.mark.parametrize("headers", [{}, {"Accept-Encoding": "gzip"}])
def test_an_answer_that_fails_midway_is_not_taken_for_whole(headers):
    def read():
        yield family.single_gauge("first", "The first.", {}, 1)
        raise RuntimeError("the second cannot be read")

    with server.Exporter("127.0.0.1", 0, read) as one:
        threading.Thread(target=one.serve_forever, args=(0.02,), daemon=True).start()
        asked = http.client.HTTPConnection(*one.server_address[:2], timeout=30)
        asked.request("GET", "/metrics", headers=headers)
        with pytest.raises(ConnectionResetError):
            asked.getresponse().read()
        one.shutdown()


def test_who_goes_away_is_no_error_and_a_fault_of_its_own_is(caplog):
    caplog.set_level("DEBUG")
    answers = [many(), broken(), iter(NUMBERS)]
    with served() as one:
        one.read = lambda: answers.pop(0)
        with socket.create_connection(("127.0.0.1", one.server_address[1])) as gone:
            gone.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
            assert gone.recv(1)
            gone.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        until(lambda: "Error" in caplog.text, "the line")
        assert levels(caplog) == {"DEBUG"}
        with pytest.raises(ConnectionResetError):
            get(one, Accept="application/openmetrics-text").read()
        until(lambda: "ValueError: broken" in caplog.text, "the line")
        assert levels(caplog) == {"DEBUG", "ERROR"}
        assert b"saltvirt_n" in get(one).read()


def levels(caplog):
    own = [one for one in caplog.records if one.name.startswith("saltvirt.metrics.exporter")]
    return {one.levelname for one in own}


def many():
    for number in range(10**6):
        yield family.single_gauge(f"n{number}", "A number.", {}, 1)


def broken():
    raise ValueError("broken")
    yield


def test_it_serves_until_it_is_stopped():
    stop, look = threading.Event(), PeriodicReader(lambda: list(NUMBERS), 60, "room")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    asked = options.validate("127.0.0.1", port, False, 60)
    running = threading.Thread(
        target=serve.run, args=(asked, {"host": "hv1"}, (lambda: iter(()), {"room": look}), stop)
    )
    running.start()
    url = f"http://127.0.0.1:{port}/metrics"

    def said():
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=30) as answer:
            return b"saltvirt_n{" in answer.read()

    until(said, "the metrics")
    stop.set()
    running.join(60)
    gc.unfreeze()
    assert not running.is_alive()
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=30)


def test_what_an_image_takes_that_is_gone_is_nothing(tmp_path):
    image = tmp_path / "image"
    image.write_bytes(b"x" * 8192)
    assert read._allocated_bytes(str(image)) == image.stat().st_blocks * 512 > 0
    image.unlink()
    assert read._allocated_bytes(str(image)) == 0


def test_without_the_client_library_the_engine_is_not_there_and_says_why():
    code = (
        "import runpy, sys; sys.modules['prometheus_client'] = None;"
        "print(runpy.run_path('_engines/virt_exporter.py')['__virtual__']())"
    )
    path = os.pathsep.join(["_utils", os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.startswith("(False, ") and "pip install prometheus-client" in done.stdout


def certificate(folder, name):
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-days", "2", "-subj", f"/CN={name}", "-addext", "subjectAltName=IP:127.0.0.1",
         "-keyout", f"{folder}/key", "-out", f"{folder}/cert"],
        check=True, capture_output=True,
    )  # fmt: skip


def test_tls_reads_a_certificate_that_was_renewed(tmp_path):
    tls = tls_listener.CertificateFiles(f"{tmp_path}/cert", f"{tmp_path}/key")
    certificate(tmp_path, "first")
    with served(NUMBERS, tls) as one:
        for name in ("first", "second"):
            certificate(tmp_path, name)
            trusted = ssl.create_default_context(cafile=tls.certificate)
            assert b"saltvirt_n" in get(one, scheme="https", context=trusted).read()
        with pytest.raises((urllib.error.URLError, ConnectionError, OSError)):
            get(one)
        with socket.create_connection(("127.0.0.1", one.server_address[1])):
            trusted = ssl.create_default_context(cafile=tls.certificate)
            assert b"saltvirt_n" in get(one, scheme="https", context=trusted).read()


ENGINE = """
import json, logging, signal, sys
import salt.config, salt.loader
role, root, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
opts = getattr(salt.config, f"{role}_config")(None)
opts.update(
    id="hv1", __role=role, cachedir=f"{root}/cache", pki_dir=f"{root}/pki", sock_dir=f"{root}/sock",
    grains={"id": "hv1", "kernel": "Linux"}, extension_modules="", file_client="local",
    module_dirs=["_modules"], engines_dirs=["_engines"], runner_dirs=["_runners"],
    virt={"connection": {"uri": "test:///default"}, "images": f"{root}/images"},
)
if role == "master":
    opts["virt"] = {"hosts": "nobody"}
functions = salt.loader.minion_mods(opts) if role == "minion" else {}
engines = salt.loader.engines(opts, functions, salt.loader.runner(opts), {})
logging.getLogger().addHandler(logging.StreamHandler())
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
engines["virt_exporter.start"](**options)
"""


@contextlib.contextmanager
def engine(role, root, **options):
    """The engine as Salt's loader has it. Yields its port and what it has said."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    said = root / "said"
    argv = [sys.executable, "-c", ENGINE, role, str(root), json.dumps({"port": port, **options})]
    path = f"{REPOSITORY}:{REPOSITORY}/_utils:{os.environ.get('PYTHONPATH', '')}".rstrip(":")
    with open(said, "wb") as log, subprocess.Popen(
        argv, cwd=REPOSITORY, stdout=log, stderr=log,
        env={**os.environ, "PYTHONPATH": path, "HOME": str(root)},
    ) as process:  # fmt: skip
        try:
            yield port, said
            process.terminate()
            assert process.wait(60) == 0
        finally:
            process.kill()


def exported(port, said, wanted):
    """The samples of an engine, once it has one of that name."""
    url = f"http://127.0.0.1:{port}/metrics"
    asked = urllib.request.Request(url, headers={"Accept": "application/openmetrics-text"})

    def there():
        with contextlib.suppress(OSError), urllib.request.urlopen(asked, timeout=30) as answer:
            text = answer.read().decode()
            return text if wanted in text else None
        return None

    return until(there, f"{wanted}: {said.read_text()}", 60)


def test_the_engine_on_a_hypervisor(tmp_path):
    with engine("minion", tmp_path, every_s=1) as (port, said):
        text = exported(port, said, "\nsaltvirt_host_vcpus_promised{")
    assert 'saltvirt_libvirt_up{host="hv1"} 1.0' in text
    assert 'guest="test"' in text and 'state="running"' in text
    assert 'saltvirt_part_up{host="hv1",part="files"} 1.0' in text


def test_the_engine_on_a_master(tmp_path):
    (tmp_path / "pki/minions").mkdir(parents=True)
    rules = certificates.policy(settings.of_master({}))
    ca.ensure(CertificateStore(str(tmp_path / "pki")), rules)
    with engine("master", tmp_path, every_s=1) as (port, said):
        text = exported(port, said, "\nsaltvirt_authority_up{")
    assert 'saltvirt_authority_up{authority="libvirt"} 1.0' in text
    [end] = re.findall(r'\nsaltvirt_authority_not_after_timestamp_seconds.*"libvirt"} (.*)', text)
    assert float(end) > time.time() + 86400
    assert "\nsaltvirt_ha_armed" not in text  # it is not configured
    assert 'saltvirt_part_up{part="hosts"} 1.0' not in text  # no master runs that could ask


@pytest.mark.parametrize("role, option, words", [
    ("minion", {"address": "everywhere"}, "virt_exporter: address must be an IP address"),
    ("master", {"tls": True}, "virt_exporter: a master has no certificate for tls"),
])  # fmt: skip
def test_a_wrong_option_of_the_engine_is_one_line(tmp_path, role, option, words):
    with engine(role, tmp_path, **option) as (_port, said):
        line = until(lambda: words in said.read_text("utf-8") and said.read_text(), "a line", 60)
    assert "Traceback" not in line
