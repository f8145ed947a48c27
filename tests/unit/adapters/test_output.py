"""The outputter of the runner's results, without Salt."""

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[3] / "_output" / "virt_query.py"


@pytest.fixture(scope="module")
def output():
    spec = importlib.util.spec_from_file_location("virt_query", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.output


GUEST = {
    "cpu": 2,
    "mem": 524288,
    "state": "running",
    "graphics": {"type": "vnc", "port": "5900", "listen": "127.0.0.1"},
    "disks": {
        "vda": {
            "file": "/srv/salt-images/centos_system.qcow2",
            "file format": "qcow2",
            "virtual size": 2 * 1024**3,
        }
    },
    "nics": {"ac:de:48:98:08:77": {"source": {"bridge": "br0"}, "type": "bridge"}},
}


def test_query_has_the_layout_of_salts_tutorial(output):
    assert output({"hyper6": {"vm_info": {"centos": GUEST}}}).splitlines() == [
        "hyper6",
        "  centos",
        "    CPU: 2",
        "    Memory: 512 MiB",
        "    State: running",
        "    Graphics: vnc - hyper6:5900",
        "      Listens on 127.0.0.1 of hyper6: see virt.display centos",
        "    Disk - vda:",
        "      Size: 2 GiB",
        "      File: /srv/salt-images/centos_system.qcow2",
        "      File Format: qcow2",
        "    Nic - ac:de:48:98:08:77:",
        "      Source: br0",
        "      Type: bridge",
    ]


RATES = ("disk_read_bytes_s", "disk_written_bytes_s", "network_received_bytes_s",
         "network_sent_bytes_s")  # fmt: skip
DETAILS = {
    "addresses": ["10.0.0.7", "2001:db8::7"], "owner": "anna", "labels": ["web"],
    "autostart": True, "uuid": "8c866fd7", "ha": {"state": "started", "priority": 3},
    "snapshots": [{"name": "before", "current": False}, {"name": "after", "current": True}],
    "backups": {"count": 5, "last": {"target": "vault", "backup_id": "9-x", "age_s": 7500}},
    "usage": {"cpu_percent": 12.4, "memory_bytes": 2**29, "memory_used_bytes": 2**28,
              **dict.fromkeys(RATES, 2048)},
}  # fmt: skip


def test_vm_info_has_a_line_for_each_fact(output):
    lines = output({"h": {"vm_info": {**GUEST, **DETAILS}}}).splitlines()
    assert lines[:2] == ["h", "  vm_info"]
    assert lines[-10:] == [
        "    Addresses: 10.0.0.7, 2001:db8::7",
        "    Owner: anna",
        "    Labels: web",
        "    Autostart: yes",
        "    Snapshots: before, after (current)",
        "    Backups: 5, the last good one 2 h 5 min old at vault",
        "    High Availability: state: started; priority: 3",
        "    Usage: CPU 12 %, memory 256 MiB of 512 MiB, disk read 2 KiB/s, written 2",
        "      KiB/s, network received 2 KiB/s, sent 2 KiB/s",
        "    UUID: 8c866fd7",
    ]


@pytest.mark.parametrize(
    ("details", "line"),
    [
        ({"usage": {"cpu_percent": None, "memory_bytes": 2**29, "disk_read_bytes_s": None}},
         "    Usage: memory 512 MiB"),
        ({"backups": {"count": 0, "last": None}}, "    Backups: none"),
        ({"backups": {"count": 2, "last": None}}, "    Backups: 2, no good one"),
        ({"unknown": {"backups": "vault: no answer"}}, "    Unknown: backups: vault: no answer"),
        ({"usage": None, "snapshots": [], "backups": None, "ha": None}, "      Type: bridge"),
        ({"usage": {"cpu_percent": "x"}, "snapshots": ["x", None], "backups": {"last": 7}},
         "    Usage: CPU percent x"),
    ],
)  # fmt: skip
def test_vm_info_leaves_out_what_does_not_exist(output, details, line):
    assert output({"h": {"web1": {**GUEST, **details}}}).splitlines()[-1] == line


def test_a_guest_that_cannot_be_read_is_shown_with_its_error(output):
    data = {"h": {"web1": {"state": "running", "error": "libvirt does not answer"}}}
    assert output(data).splitlines() == [
        "h", "  web1", "    Error: libvirt does not answer", "    State: running",
    ]  # fmt: skip


def test_what_a_guest_waits_for_is_below_its_state(output):
    pending = ["memory (1 GiB now, then 2 GiB)", "disk vdb"]
    lines = output({"h": {"vm_info": {"a": {**GUEST, "pending": pending}}}}).splitlines()
    assert lines[4:6] == [
        "    State: running",
        "    At the next start: memory (1 GiB now, then 2 GiB), disk vdb",
    ]


@pytest.mark.parametrize(
    ("listen", "shown"),
    [
        ("0.0.0.0", "all addresses"), ("10.0.0.7", "10.0.0.7"), ("None", "all addresses"),
        ("::1", "::1 of h: see virt.display a"),
    ],
)  # fmt: skip
def test_a_display_has_its_host_and_port_and_where_it_listens(output, listen, shown):
    guest = {"graphics": {"type": "vnc", "port": "5900", "listen": listen}}
    text = output({"h": {"vm_info": {"a": guest}}})
    assert text.splitlines()[2:] == [
        "    Graphics: vnc - h:5900",
        f"      Listens on {shown}",
    ]


def test_what_the_module_returns_is_drawn_too(output):
    """salt 'hyper*' virt.full_info --out=virt_query; the runner's wrapper with --out."""
    data = {"h": {"vm_info": {"a": GUEST}, "freemem": 1}}
    assert output(data) == output({"data": data, "outputter": "virt_query"})


def test_a_host_without_guests_and_one_that_is_down(output):
    assert output({"h": {"vm_info": {}}, "d": {"error": "down"}, "retcode": 1}) == (
        "h: no guests\nd\n  down"
    )


def test_a_disk_that_cannot_be_read_shows_its_error(output):
    guest = {"disks": {"vda": {"file": "/x", "error": "pool stopped"}}}
    assert "      Error: pool stopped" in output({"h": {"vm_info": {"a": guest}}}).splitlines()


def test_what_is_no_table_is_shown_as_it_is(output):
    assert output("one\nline") == "one\nline"
    assert output(["a", 1]) == "a\n1"
    assert output([]) == "none"
    assert output({"hv1": ["a", 1], "hv2": []}) == "hv1: a, 1\nhv2: none"
    assert output({"hv1": 5, "hv2": "no\x1b[2Jne"}) == "hv1: 5\nhv2: no [2Jne"


def test_guests_that_cannot_be_shown_are_named(output):
    guests = {"a": "no such guest", "b": {"error": "libvirt does not answer", "state": "running"}}
    assert output({"h": {"vm_info": guests}}).splitlines() == [
        "h",
        "  a: no such guest",
        "  b",
        "    Error: libvirt does not answer",
        "    State: running",
    ]


def test_sizes_and_backing_files_of_disks(output):
    disks = {
        "vda": {"file": "/a", "virtual size": 5 * 1024**4, "backing file": {"file": "/base"}},
        "vdb": {"source": "/b", "disk size": "1 GiB", "backing file": "/other", "format": "raw"},
        "vdc": {"file": "/c", "disk size": 512, "backing file": {"name": "x"}},
    }
    assert output({"h": {"vm_info": {"a": {"disks": disks}}}}).splitlines()[2:] == [
        "    Disk - vda:",
        "      Size: 5 TiB",
        "      File: /a",
        "      Backing File: /base",
        "    Disk - vdb:",
        "      Size: 1 GiB",
        "      File: /b",
        "      File Format: raw",
        "      Backing File: /other",
        "    Disk - vdc:",
        "      Size: 512 B",
        "      File: /c",
        "      Backing File: name x",
    ]


def test_a_cdrom_without_medium_and_a_display_without_port(output):
    guest = {"graphics": {"type": "spice", "port": None}, "disks": {"hda": {"file": None}}}
    text = output({"h": {"vm_info": {"a": guest}}})
    assert "Graphics: spice" in text.splitlines()[2]
    assert "      File: none" in text.splitlines()


def test_no_display_is_not_shown(output):
    assert "Graphics" not in output({"h": {"vm_info": {"a": {"graphics": {"type": "None"}}}}})


def test_an_operation_is_one_line(output):
    assert output({"a": {"result": False, "comment": "no"}, "retcode": 1}) == "no"
    assert output({"suffix": "progress", "event": {"message": "copying"}}) == "copying"


def test_tables_align(output):
    table = [["host", "cpus", "use"], ["hv1", 2, {"bar": 0.5}], ["longer", 16, {"bar": 2}]]
    lines = output({"t": {"table": table}}).splitlines()
    assert lines[0] == "host    cpus  use"
    assert lines[1] == "hv1        2  [#####.....]  50 %"
    assert lines[2].endswith("[##########] 200 %")


def test_list(output):
    data = {"hv1": {"running": ["a", "b"], "shutdown": ["c"]}, "hv2": {}, "hv3": {"error": "down"}}
    assert output(data).splitlines() == [
        "host  state     guests",
        "hv1   running   a, b",
        "      shutdown  c",
        "hv2             none",
        "hv3",
        "  down",
    ]


def test_host_info_is_a_table_and_the_host_that_is_down_stands_below(output):
    host = {
        "cpus": 2, "vcpus_used": 2, "vcpus_free": 6, "memory_mib": 1000, "memory_used_mib": 250,
        "memory_free_mib": 750, "disk_gib": 10.0, "disk_free_gib": 5.25, "guests": 1, "running": 1,
    }  # fmt: skip
    lines = output(
        {"hv1": host, "hv2": {"error": "down: no connection"}, "retcode": 1}
    ).splitlines()
    assert lines == [
        "             vCPUs   vCPUs            memory   memory      disk",
        "host  CPUs   alloc    free    memory   alloc     free      free  guests  running",
        "hv1      2    25 %       6  1000 MiB    25 %  750 MiB  5.25 GiB       1        1",
        "hv2",
        "  down: no connection",
    ]
    host["maintenance"] = "new disks"
    assert output({"hv1": host}).splitlines()[-1].endswith("new disks")


@pytest.fixture
def terminal(monkeypatch):
    """Makes sys.stdout a terminal of 20 columns, or a file."""

    def make(is_one):
        monkeypatch.setattr("sys.stdout.isatty", lambda: is_one, raising=False)
        monkeypatch.setenv("COLUMNS", "20")

    return make


def told(output, message, **how):
    return output({"suffix": "progress", "event": {"message": message, **how}})


def test_on_a_terminal_progress_takes_the_place_of_the_line_before(output, terminal):
    terminal(True)
    assert told(output, "copy: 1 %", again=False, passing=False) == "copy: 1 %"
    assert told(output, "copy: 2 %", again=True, passing=True) == "\x1b[1A\x1b[2Kcopy: 2 %"
    assert told(output, "x" * 50, again=True, passing=True) == "\x1b[1A\x1b[2K" + "x" * 19
    assert told(output, "y" * 50) == "y" * 50, "a line that stays is whole"


def test_a_log_has_plain_lines_and_not_the_passing_ones(output, terminal):
    terminal(False)
    assert told(output, "copy: 1 %", again=False, passing=False) == "copy: 1 %"
    assert told(output, "copy: 2 %", again=True, passing=True) == ""
    assert told(output, "copy: 10 %", again=True, passing=False) == "copy: 10 %"


def test_a_table_without_a_row_is_not_drawn(output):
    """As virt.repair returns it where no leftovers."""
    found = {"result": None, "comment": "no leftovers", "table": [["name", "problem"]]}
    assert output({"repair": found}) == "no leftovers"


def test_a_plan_is_its_sentence_and_its_table(output):
    plan = {"result": None, "comment": "two would move", "table": [["guest"], ["a"], ["b"]]}
    assert output({"hv1": plan}).splitlines() == ["two would move", "guest", "a", "b"]


def test_what_a_command_in_a_guest_has_printed_is_shown_as_it_is(output):
    told = {
        "result": True, "comment": "web1 on hv1: exit code 0", "exit_code": 0, "stderr": "",
        "stdout": "a\tb\n\x1b[2J  c\n",
    }  # fmt: skip
    assert output({"web1": told}) == "a       b\n [2J  c"
    told |= {
        "result": False,
        "exit_code": 3,
        "stderr": "no\n",
        "comment": "web1 on hv1: exit code 3",
    }
    assert output({"web1": told, "retcode": 1}).splitlines() == [
        "a       b", " [2J  c", "no", "web1 on hv1: exit code 3",
    ]  # fmt: skip
    told |= {"result": True, "stdout": "", "stderr": ""}
    assert output({"web1": told}) == "web1 on hv1: exit code 3"


def test_backups_are_a_table_of_eighty_columns(output):
    one = {
        "backup_id": "000007-20261123T155220Z-1f3a9c2e", "guest": "web1", "uuid": "u",
        "host": "hyper1",
        "taken_at": "2026-11-23T15:52:20Z", "consistency": "stopped", "disks": {"vda": "full"},
        "stored_bytes": 10 * 2**30, "problem": None,
    }  # fmt: skip
    disks = {"vda": one["backup_id"]}
    more = {**one, "backup_id": "000008-20261124T155220Z-1f3a9c2e", "disks": disks}
    problem = "record.json is gone"
    bad = {"backup_id": "000009-20261125T155220Z-1f3a9c2e", "uuid": "u", "problem": problem}
    text = output({"vault": [one, more, {**bad, "guest": "web1"}], "attic": []})
    lines = text.splitlines()
    assert lines == [
        "vault:",
        "guest  backup  taken (UTC)       host    disks          size  consistency  good",
        "web1        7  2026-11-23 15:52  hyper1  full         10 GiB  stopped      yes",
        "web1        8  2026-11-23 15:52  hyper1  incremental  10 GiB  stopped      yes",
        "web1        9                                            0 B               NO",
        "  web1 000009: record.json is gone",
        "attic: none",
    ]
    assert max(map(len, lines)) <= 80
    assert "{" not in text


def test_a_log_that_is_too_wide_has_each_comment_below_its_row(output, monkeypatch):
    def lines(comment):
        rows = [["10:56", "attach", comment], ["10:57", "reset", None]]
        table = [["time", "verb", "comment"], *rows]
        answer = {"title": "2 changes", "table": table, "columns": {"comment": {"under": True}}}
        return output({"log": answer}).splitlines()

    assert lines("short") == ["2 changes", "time   verb    comment", "10:56  attach  short",
                              "10:57  reset"]  # fmt: skip
    comment = " ".join(["changed"] * 12)
    rows = ["2 changes", "time   verb", "10:56  attach", f"  {comment}", "10:57  reset"]
    assert lines(comment) == rows  # one line in a pipe
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert max(map(len, lines(comment))) <= 80
    assert lines(comment)[:3] == rows[:3]


def test_answers_of_a_host_name_what_is_missing(output):
    """As functions of the module answer: an empty list or dictionary, None, and its texts."""
    assert output({"hv1": {}, "hv2": []}) == "hv1: none\nhv2: none"
    assert output({"hv1": None, "hv2": True}) == "hv1: none\nhv2: True"
    assert output({"hv1": {"port": "None", "deleted": "N/A", "leases": {}}}).splitlines() == [
        "hv1", "  port: none", "  deleted: none", "  leases: none",
    ]  # fmt: skip
    assert output({"hv1": {"web1": []}}).splitlines() == ["hv1", "  web1: none"], "no state"


def test_records_by_their_names_are_a_table(output):
    snapshots = {name: {"name": name, "current": name == "b", "parent": None} for name in "ab"}
    assert output({"hv1": {"deleted": snapshots, "used_bytes": 2048}}).splitlines() == [
        "hv1",
        "  deleted:",
        "    name  current",
        "    a     no",
        "    b     yes",
        "  used: 2 KiB",
    ]
    assert output({"hv1": {"w": {"cputime": 61 * 10**9}}}).splitlines()[-1].endswith("1 min 1 s")


def test_sentences_of_a_list_have_their_own_lines(output):
    problems = ["/etc/pki/libvirt/servercert.pem is missing", "the CA of this host is another one"]
    assert output({"hv1": {"problems": problems, "names": ["a", "b"]}}).splitlines() == [
        "hv1", "  problems:", *(f"    {problem}" for problem in problems), "  names: a, b",
    ]  # fmt: skip
    long = "the reason is " + "long " * 20
    lines = output({"hv1": {"reason": long}}).splitlines()
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines).split()) == f"hv1 reason: {long.strip()}"


def test_wide_characters_keep_the_columns_aligned(output, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    table = [["guest", "title", "host"], ["web1", "東京の計算機" * 6, "hv1"], ["web2", "x", "hv2"]]
    lines = output({"x": {"table": table}}).splitlines()

    def width(text):
        return sum(2 if ord(character) > 0x2E80 else 1 for character in text)

    assert max(map(width, lines)) <= 80
    assert len({width(line[: line.index(" hv")]) for line in lines if " hv" in line}) == 1
    assert "".join(output({"x": {"title": "東京" * 30}}).split()).endswith("title:" + "東京" * 30)


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        ({"uptime_s": float("nan")}, "uptime: nan"),
        ({"uptime_s": float("inf")}, "uptime: inf"),
        ({"age_s": -5}, "age: -5 s"),
        ({"items": [{"": " ", "text": "y " * 50}]}, "items:"),
        ({"table": True}, "table: yes"),
        ({"memory_free_mib": 5}, "memory_free: 5 MiB"),
        ({"table": [["a"], [{"bytes": True}]]}, "bytes yes"),
    ],
)
def test_what_a_host_sends_wrongly_is_shown(output, answer, shown):
    assert shown in output({"hv1": answer})


def test_a_dumb_terminal_gets_no_escape_sequences(output, monkeypatch, terminal):
    terminal(True)
    monkeypatch.setenv("TERM", "dumb")
    event = {"message": "copying", "again": True}
    assert output({"suffix": "progress", "event": event}) == "copying"
