"""Metrics as values, and as the client library writes them."""

import math
import threading

import pytest

pytest.importorskip("prometheus_client")

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Metric, exposition
from prometheus_client.openmetrics import parser

from saltvirt import errors
from saltvirt.metrics.exporter import options, source, text
from saltvirt.metrics.exporter import readers as look_module
from saltvirt.metrics.exporter.readers import OnDemandReader, PeriodicReader
from saltvirt.metrics.model import family, guests, host_capacity
from saltvirt.placement.facts import (
    Arriving,
    Guest,
    ImagesStorage,
    Inventory,
    StoragePool,
    StorageSpace,
    host_of,
)
from saltvirt.placement.policy import PlacementPolicy
from tests.clock import Clock, until

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
GIB = 1024**3
STATS = {
    "state.state": 1, "state.reason": 1, "cpu.time": 5_000_000_000, "vcpu.current": 1,
    "vcpu.maximum": 2, "vcpu.0.state": 1, "vcpu.0.time": 3_000_000_000, "vcpu.0.delay": 250_000_000,
    "vcpu.0.wait": 0, "balloon.current": 1024, "balloon.maximum": 2048, "balloon.rss": 700,
    "balloon.available": 1000, "balloon.usable": 400, "block.count": 2, "block.0.name": "vda",
    "block.0.rd.reqs": 7, "block.0.rd.bytes": 4096, "block.0.rd.times": 1_500_000_000,
    "block.0.capacity": GIB, "block.1.name": "vdb", "net.count": 1, "net.0.name": "vnet0",
    "net.0.rx.bytes": 100, "net.0.tx.bytes": 50,
}  # fmt: skip


def seen(name="web1", stats=None, state="running"):
    labels = {"guest": name, "host": "hv1", "uuid": "u-1"}
    return guests.GuestStats(labels, state, STATS if stats is None else stats)


def parsed(families):
    """{name of a sample: {its labels as a frozenset: value}} of what is written as OpenMetrics."""
    kind, pieces = text.render(families, OPENMETRICS)
    assert kind.startswith("application/openmetrics-text")
    found = {}
    for one in parser.text_string_to_metric_families(b"".join(pieces).decode()):
        for sample in one.samples:
            found.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
    return found


def value(found, name, **labels):
    """That of the only sample of the name with these labels."""
    several = found[f"saltvirt_{name}"].items()
    fits = [value for have, value in several if labels.items() <= dict(have).items()]
    assert len(fits) == 1, (name, labels, found[f"saltvirt_{name}"])
    return fits[0]


def test_units_are_base_units_and_counters_are_totals():
    found = parsed(guests.families([seen()]))
    assert value(found, "guest_cpu_seconds_total", guest="web1", host="hv1", uuid="u-1") == 5
    assert value(found, "guest_vcpu_seconds_total", vcpu="0") == 3
    assert value(found, "guest_vcpu_steal_seconds_total", vcpu="0") == 0.25
    assert value(found, "guest_memory_bytes") == 1024**2
    assert value(found, "guest_memory_resident_bytes") == 700 * 1024
    assert value(found, "guest_memory_used_bytes") == 600 * 1024
    assert value(found, "guest_disk_reads_total", device="vda") == 7
    assert value(found, "guest_disk_read_seconds_total", device="vda") == 1.5
    assert value(found, "guest_disk_capacity_bytes", device="vda") == GIB
    assert value(found, "guest_network_received_bytes_total", device="vnet0") == 100
    assert value(found, "guest_state", state="running") == 1


def test_a_counter_that_is_zero_has_a_sample():
    """A rate from nothing to 5 is none."""
    stats = {"cpu.time": 0, "block.count": 1, "block.0.name": "vda", "block.0.rd.reqs": 0}
    found = parsed(guests.families([seen(stats=stats)]))
    assert value(found, "guest_cpu_seconds_total") == 0
    assert value(found, "guest_disk_reads_total", device="vda") == 0


def test_what_libvirt_does_not_say_has_no_sample():
    found = parsed(guests.families([seen(stats={"state.state": 5}, state="shutdown")]))
    assert {*found} == {"saltvirt_guest_state"}
    assert value(found, "guest_state", state="shutdown") == 1


@pytest.mark.parametrize(
    "lie",
    [
        {"block.count": 10**9, "block.0.name": 5, "vcpu.maximum": "many", "net.count": -1},
        {"balloon.current": "much", "cpu.time": None, "vcpu.current": True},
        {"block.count": 2, "block.0.name": "a", "block.1.name": "a", "block.0.rd.reqs": 1,
         "block.1.rd.reqs": 2},
    ],
)  # fmt: skip
def test_what_does_not_fit_is_passed_over(lie):
    found = parsed(guests.families([seen(stats=lie)]))
    assert {*found} <= {"saltvirt_guest_state", "saltvirt_guest_disk_reads_total"}


@pytest.mark.parametrize(
    "name", ['a"b', "a\\b", "a\nsaltvirt_libvirt_up 0", "ü{}", '"} 1\n# EOF\n', "a\tb\x7f"]
)
def test_a_hostile_name_is_a_label_and_nothing_else(name):
    found = parsed(guests.families([seen(name), seen()]))
    assert value(found, "guest_memory_bytes", guest=name) == 1024**2
    assert value(found, "guest_memory_bytes", guest="web1") == 1024**2
    assert "saltvirt_libvirt_up" not in found
    _, pieces = text.render(guests.families([seen(name)]))
    lines = b"".join(pieces).decode().split("\n")
    assert all(line.startswith(("# ", "saltvirt_")) or not line for line in lines)


def test_the_older_text_is_what_nobody_asked_for_otherwise():
    kind, pieces = text.render(guests.families([seen()]))
    assert kind.startswith("text/plain")
    assert b"# EOF" not in b"".join(pieces)


LABELS = st.dictionaries(st.sampled_from(["guest", "host", "uuid", "device"]),
                         st.text(st.characters(exclude_categories=["Cs"])), max_size=4)  # fmt: skip
NUMBERS = st.floats() | st.integers(0, 2**64) | st.booleans()
ACCEPTED = [
    "", OPENMETRICS, f"{OPENMETRICS}; escaping=dots", f"{OPENMETRICS}; escaping=allow-utf-8",
    "text/plain; version=1.0.0; escaping=values", "application/openmetrics-text",
]  # fmt: skip


def by_library(families, accept):
    """What the client library itself writes of all of them."""

    class Registry(CollectorRegistry):
        def collect(self):
            for one in families:
                metric = Metric(f"saltvirt_{one.name}", one.help_text, one.kind)
                total = "_total" if one.kind == "counter" else ""
                for labels, number in one.samples:
                    metric.add_sample(f"saltvirt_{one.name}{total}", labels, number)
                yield metric

    writer, kind = exposition.choose_encoder(accept)
    return kind, writer(Registry())


@given(st.lists(st.builds(
    family.Family, st.sampled_from(["guest_state", "n", "a_created", "b_gcount"]),
    st.sampled_from([family.GAUGE, family.COUNTER]), st.text(st.characters(codec="utf-8")),
    st.lists(st.builds(family.Sample, LABELS, NUMBERS), max_size=4),
), min_size=1, max_size=3), st.sampled_from(ACCEPTED))  # fmt: skip
def test_what_is_written_is_what_the_library_writes(families, accept):
    kind, pieces = text.render(families, accept)
    assert (kind, b"".join(pieces)) == by_library(families, accept)


@pytest.mark.parametrize("accept", ACCEPTED)
def test_so_is_what_is_written_of_guests(accept):
    several = [seen(name) for name in ("web1", 'a"\\\n', "ü")]
    families = [
        family.Family(one.name, one.kind, one.help_text, list(one.samples))
        for one in guests.families(several)
    ]  # fmt: skip
    assert b"".join(text.render(families, accept)[1]) == by_library(families, accept)[1]


def test_a_library_that_writes_otherwise_is_asked_for_every_line(monkeypatch):
    def spaced(registry):
        (metric,) = registry.collect()
        return "".join(f"{one.name}  {one.value}\n" for one in metric.samples).encode()

    monkeypatch.setattr(text.exposition, "choose_encoder", lambda accept: (spaced, "kind"))
    samples = [family.Sample({}, 1), family.Sample({"host": "a"}, 2)]
    _, pieces = text.render([family.gauge("n", "A number.", iter(samples))])
    assert b"".join(pieces) == b"saltvirt_n  1\nsaltvirt_n  2\n"


def test_a_piece_is_made_when_it_is_asked_for():
    began = []

    def families():
        for number in range(3):
            began.append(number)
            yield family.single_gauge(f"n{number}", "A number.", {}, number)

    _, pieces = text.render(families(), OPENMETRICS)
    assert began == []
    next(pieces)
    assert began == [0]


def test_without_the_library_there_is_one_line(monkeypatch):
    monkeypatch.setattr(text, "IMPORT_ERROR", ImportError("No module named 'prometheus_client'"))
    with pytest.raises(errors.Unsupported, match="pip install prometheus-client") as exc:
        text.render([])
    assert "\n" not in str(exc.value)


def inventory(**more):
    return Inventory(
        cpus=8, memory_kib=16 * 1024**2,
        guests={"a": Guest("a", "u", "running", 2, 1024**2)},
        arriving={"b": Arriving(1, 1024**2)},
        images_folder=ImagesStorage(100 * GIB, 60 * GIB, store="/", path="/srv"),
        stores={"/": StorageSpace(100 * GIB, 60 * GIB, 10 * GIB)}, mounts={"/": "/"},
        pools={"fast": StoragePool(100 * GIB, 60 * GIB, 10 * GIB, store="/")}, **more,
    )  # fmt: skip


def test_room_is_that_of_placement():
    told = inventory(maintenance="disks", silent=("/mnt/dead",))
    host, policy = host_of("hv1", told), PlacementPolicy()
    found = parsed(host_capacity.families(host, policy))
    assert value(found, "host_vcpus_promised", host="hv1") == host.used(policy, "vcpus") == 3
    assert value(found, "host_vcpus_free") == host.free_vcpus(policy)
    assert value(found, "host_memory_promised_bytes") == host.used(policy, "memory_kib") * 1024
    assert math.isclose(value(found, "host_memory_free_bytes"), host.free_memory_kib(policy) * 1024)
    free = host.free_store_bytes(policy, host.pool_store("fast"))
    assert value(found, "pool_promisable_bytes", pool="fast") == free
    assert value(found, "pool_promised_bytes", pool="fast") == 10 * GIB
    assert value(found, "images_folder_promisable_bytes") == host.free_disk_bytes(policy)
    assert value(found, "host_maintenance") == 1
    assert value(found, "host_arriving_guests") == 1
    assert value(found, "host_storage_silent", mount="/mnt/dead") == 1


def test_who_asks_waits_no_longer_than_told_and_what_hangs_is_begun_once():
    hangs, begun = threading.Event(), []

    def read():
        begun.append(1)
        hangs.wait()
        return 7

    fresh = OnDemandReader(read, 0.01)
    for _ in range(3):
        with pytest.raises(errors.ConnectionFailed, match="no response within"):
            fresh()
    until(lambda: begun, "it has begun")
    assert begun == [1]
    hangs.set()
    patient = OnDemandReader(read, 60)
    assert patient() == 7
    assert fresh.read is read


def test_after_it_hung_it_is_asked_again():
    first = threading.Event()
    answers = iter([first, None])

    def read():
        if waits := next(answers):
            waits.wait()
        return threading.current_thread().name

    fresh = OnDemandReader(read, 0.01)
    with pytest.raises(errors.ConnectionFailed):
        fresh()
    first.set()
    fresh.timeout_s = 60
    fresh()


def test_a_fault_of_its_own_is_told_to_who_asks_and_the_next_one_is_answered(caplog):
    answers = [ValueError("broken"), errors.ConnectionFailed("libvirt is away"), None]

    def read():
        if answers[0]:
            raise answers.pop(0)
        return 7

    fresh = OnDemandReader(read, 60)
    with pytest.raises(errors.OperationFailed, match=r"internal error: ValueError\('broken'\)"):
        fresh()
    assert "Traceback" in caplog.text
    until(lambda: fresh._under_way is None, "its end")
    with pytest.raises(errors.ConnectionFailed, match="libvirt is away"):
        fresh()
    until(lambda: fresh._under_way is None, "its end")
    assert fresh() == 7


def test_without_memory_for_a_thread_it_says_so_and_the_next_one_is_answered(monkeypatch):
    def full(_thread):
        raise RuntimeError("can't start new thread")

    fresh = OnDemandReader(lambda: 7, 60)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", full)
        with pytest.raises(errors.ConnectionFailed, match="can't start new thread"):
            fresh()
    assert fresh() == 7


def test_it_looks_again_and_again_until_it_is_stopped():
    stop, seen_ = threading.Event(), []
    PeriodicReader(lambda: seen_.append(threading.current_thread()), 0.001, "room").begin(stop)
    until(lambda: len(seen_) > 2, "looks")
    stop.set()
    seen_[0].join(60)
    assert not seen_[0].is_alive() and len(set(seen_)) == 1


def test_nothing_old_stands_in_for_what_cannot_be_read(caplog):
    answers = [[family.single_gauge("n", "A number.", {}, 1)]]

    def read():
        if answers:
            return answers.pop()
        raise errors.ConnectionFailed("libvirt is away")

    look = PeriodicReader(read, 60, "room")
    for there in (True, False, False):
        look.read_once()
        found = parsed(source.families({"host": "hv1"}, lambda: iter(()), {"room": look}))
        assert ("saltvirt_n" in found) is there
        assert value(found, "part_up", part="room", host="hv1") == there
        assert ("saltvirt_part_timestamp_seconds" in found) is there
    assert caplog.text.count("libvirt is away") == 1


def test_nothing_old_stands_in_while_a_look_hangs(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(look_module, "time", clock)
    look = PeriodicReader(lambda: [family.single_gauge("n", "A number.", {}, 0)], 60, "room")
    look.read_once()
    for seconds, up in ((179, 1), (2, 0)):
        clock.sleep(seconds)
        read = parsed(source.families({"host": "hv1"}, lambda: iter(()), {"room": look}))
        assert value(read, "part_up", part="room", host="hv1") == up
        assert ("saltvirt_n" in read) == bool(up)


def test_what_is_read_for_one_text_is_in_it():
    looks = {
        "room": PeriodicReader(lambda: [family.single_gauge("n", "A number.", {}, 1)], 0, "room")
    }
    found = source.export_once({"host": "hv1"}, lambda: iter(()), looks, None)
    assert 'saltvirt_part_up{host="hv1",part="room"} 1.0\n' in found
    assert "saltvirt_n 1.0\n" in found


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path):
    path = tmp_path / "salt-virt.prom"
    path.write_text("old", encoding="utf-8")

    def now():
        yield family.single_gauge("n", "A number.", {}, 1)

    assert source.export_once({}, now, {}, str(path)) == str(path)
    assert "saltvirt_n 1.0\n" in path.read_text(encoding="utf-8")
    assert path.stat().st_mode & 0o777 == 0o644
    assert [*tmp_path.iterdir()] == [path]
    (tmp_path / "folder.prom").mkdir()
    with pytest.raises(errors.OperationFailed, match=r"folder.prom cannot be written"):
        source.export_once({}, now, {}, f"{tmp_path}/folder.prom")
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.parametrize("path", ["/etc/passwd", "a.prom", 5, True, "", "/a\n.prom", ["/a.prom"]])
def test_a_path_is_that_of_a_text_file_collector(path):
    with pytest.raises(errors.InvalidInput, match=r"ends with \.prom"):
        source.export_once({}, lambda: iter(()), {}, path)


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ({"address": "everywhere"}, "address"), ({"address": 5}, "address"),
        ({"address": ["127.0.0.1"]}, "address"), ({"port": 0}, "port"), ({"port": True}, "port"),
        ({"port": "9177"}, "port"), ({"port": 65536}, "port"), ({"tls": "yes"}, "tls"),
        ({"every_s": 0}, "every_s"), ({"every_s": "often"}, "every_s"),
        ({"every_s": float("nan")}, "every_s"), ({"every_s": 10**9}, "every_s"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_named_in_one_line(wrong, name):
    given = {"address": "127.0.0.1", "port": 9177, "tls": False, "every_s": 60, **wrong}
    with pytest.raises(errors.InvalidInput, match=f"virt_exporter: {name} must be"):
        options.validate(**given)
    assert options.validate("::1", 9177, True, 5).address == "::1"
