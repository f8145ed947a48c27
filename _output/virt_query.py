"""
Format the output of ``salt-run virt.*`` and ``salt HOST virt.*`` for a terminal.

It formats the answers of the ``virt`` runner and of the functions of the ``virt`` module: the
guests of ``virt.query`` in the layout of Salt's cloud controller tutorial, tables for functions
that compare hosts or guests, one line for an operation, and progress lines. A table is as wide as
the terminal, but at least 80 columns: a wider one folds its texts, then drops columns, then prints
each row as a block. ``--out=json`` and other outputters get the plain data.

CLI Example:

.. code-block:: bash

    salt-run virt.query
    salt 'hyper*' virt.full_info
    salt 'hyper*' virt.full_info --out=nested
"""

import itertools
import math
import os
import re
import shutil
import sys
import textwrap
import unicodedata

# Outputters cannot import the library: Salt does not put it on their path. Hence the
# few lines for sizes and texts below.
# control characters of terminals and line breaks, which hosts must not send
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
# not in any text that is shown
_FILLER = "\ufdd0"
_BAR = 10
_LEVELS = 50
_CELL = 4000
_UP_AND_CLEAR = "\x1b[1A\x1b[2K"
_COLUMNS = 80
# a folded text keeps so many characters in a line; a broken word so many
_FOLDED, _BROKEN = 16, 8
_GAP = "  "
# keys whose values have a unit, and its bytes
_SCALES = {
    "mem": 1024, "maxMem": 1024, "phymemory": 2**20, "virtual size": 1, "disk size": 1,
    "capacity": 1, "allocation": 1, "free": 1, "physical": 1,
}  # fmt: skip
# of domains, as libvirt has them
_STATES = {
    "running",
    "idle",
    "paused",
    "shutdown",
    "crashed",
    "pmsuspended",
    "unknown",
}
# endings of names that are units, and their bytes
_ENDINGS = {"_bytes": 1, "_kib": 1024, "_mib": 2**20, "_gib": 2**30}
_PERIODS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def output(data, **kwargs):
    """
    Format data for the terminal.

    :param data: answer of a function of the ``virt`` runner, minions to answers of the ``virt``
        module, or a progress event of the runner
    :return: lines of text; empty if there is nothing to show
    """
    return _formatted(data).replace(_FILLER, "")


def _formatted(data):
    """The lines of an answer, with fillers after wide characters."""
    if isinstance(data, dict) and "event" in data and "suffix" in data:
        return _progress(data["event"])
    if isinstance(data, dict) and set(data) == {"data", "outputter"}:
        data = data["data"]
    if not isinstance(data, dict):
        return "\n".join(_lines(data))
    rows = {_text(key): _row(value) for key, value in data.items() if key != "retcode"}
    summaries = {key: value for key, value in rows.items() if _mapping(value).get("summary")}
    rows = summaries or rows  # of a verb for several guests: the table has each guest's result
    for fits, draw in ((_is_host_size, _hosts), (_is_listing, _listing)):
        matching = {key: value for key, value in rows.items() if fits(value)}
        if any(matching.values()):
            rest = {key: value for key, value in rows.items() if key not in matching}
            blocks = [draw(matching), *(_block(*row) for row in rest.items())]
            return _joined(blocks)
    return _joined([_block(*row) for row in rows.items()])


def _joined(blocks):
    """The blocks of text without those that repeat the previous one."""
    different = [b for index, b in enumerate(blocks) if index == 0 or b != blocks[index - 1]]
    return "\n".join(different)


def _lines(data):
    """The lines of an answer that is not a dictionary."""
    if isinstance(data, (list, tuple)):
        return _nested(_sanitized(data)) or ["none"]
    return [_text(_plain(data), "\n")]


def _text(value, break_=" "):
    """Format a value as text on one line, or on several lines that differ from those of this
    outputter."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return break_.join(_UNSEEN.sub(" ", line) for line in text.splitlines() or [""])


def _row(value):
    """Sanitize the data of one host or guest."""
    if isinstance(value, str):
        return _text(value, "\n  ")
    if isinstance(value, dict) and {"stdout", "exit_code", "comment"} <= value.keys():
        return _Verbatim(_command_output(value))
    return _sanitized(value)


class _Verbatim(str):
    """Text that is shown as it is."""

    __slots__ = ()


def _sanitized(data, levels=_LEVELS):
    """Sanitize all texts in the data, and drop data that is nested too deeply."""
    if isinstance(data, (str, bytes)):
        return _text(data)
    if isinstance(data, (dict, list, tuple)) and not levels:
        return "..."
    if isinstance(data, dict):
        return {_text(key): _sanitized(value, levels - 1) for key, value in data.items()}
    if isinstance(data, (list, tuple)):
        return [_sanitized(item, levels - 1) for item in data]
    return data


def _mapping(value):
    """The value if it is a dictionary, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def _plain(value):
    """A value as people write it."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(item)}".rstrip() for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_plain, value))
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _progress(event):
    """Format a progress line. On a terminal, a line about a long step replaces the previous one; in
    a log, temporary lines are left out."""
    text = _text(event.get("message", ""))
    if not sys.stdout.isatty() or os.environ.get("TERM") == "dumb":
        return "" if event.get("passing") else text
    if "again" not in event:
        return "\n".join(_sentence("", text))
    text = text[: shutil.get_terminal_size().columns - 1]  # a wrapped line cannot be erased
    return f"{_UP_AND_CLEAR}{text}" if event["again"] else text


def _is_host_size(value):
    return isinstance(value, dict) and value.keys() >= _OF_HOSTS


# what virt.host_info has of each host
_OF_HOSTS = {
    "cpus", "vcpus_used", "vcpus_free", "memory_mib", "memory_used_mib", "memory_free_mib",
    "disk_gib", "disk_free_gib", "guests", "running",
}  # fmt: skip


def _hosts(hosts):
    """The table of ``virt.host_info``; "alloc" is what is allocated to guests."""
    head = ["host", "CPUs", "vCPUs alloc", "vCPUs free", "memory", "memory alloc", "memory free",
            "disk", "disk free", "guests", "running", "maintenance"]  # fmt: skip
    rows: list[list[object]] = [[*head]]
    for name, host in hosts.items():
        rows.append([
            name, host["cpus"], _bar(host["vcpus_used"], host["vcpus_free"]), host["vcpus_free"],
            {"bytes": host["memory_mib"] * 2**20},
            _bar(host["memory_used_mib"], host["memory_free_mib"]),
            {"bytes": host["memory_free_mib"] * 2**20}, {"bytes": host["disk_gib"] * 2**30},
            {"bytes": host["disk_free_gib"] * 2**30}, host["guests"], host["running"],
            host.get("maintenance"),
        ])  # fmt: skip
    dropped = ("disk", "memory", "CPUs", "vCPUs alloc", "memory alloc", "running")
    return _table(rows, {head: {"drop": n} for n, head in enumerate(dropped)})


def _bar(used, free):
    return {"bar": used / (used + free) if used + free else 0}


def _is_listing(value):
    return isinstance(value, dict) and all(
        state in _STATES and isinstance(names, list) and _are_texts(names)
        for state, names in value.items()
    )


def _are_texts(values):
    return all(isinstance(value, str) for value in values)


def _listing(hosts):
    """The table of ``virt.list``: one row for each host and state."""
    rows = [["host", "state", "guests"]]
    for name, states in hosts.items():
        state_rows = [[state, ", ".join(map(str, names))] for state, names in states.items()]
        first, *later_rows = state_rows or [["", "none"]]
        rows += [[name, *first], *(["", *later_row] for later_row in later_rows)]
    return _table(rows)


def _block(name, value):
    """Format one host or guest, depending on its data."""
    if isinstance(value, _Verbatim):
        return value
    if not isinstance(value, dict):
        return _list_block(name, value)
    if "error" in value and value.keys() <= {"error", "last_seen"}:
        last_seen = _last_seen(_mapping(value.get("last_seen")))
        return "\n".join([name, *_sentence("  ", value["error"]), *last_seen])
    if "comment" in value and "result" in value:
        return "\n".join([_titled_table(value, value["comment"]), *_displays(name, value)])
    if "table" in value:
        return _titled_table(value, value.get("title"))
    lines = _answer(name, value)
    nothing = "no guests" if "vm_info" in value else "none"
    return "\n".join([name, *lines]) if lines else f"{name}: {nothing}"


def _answer(name, value):
    """The lines below the name of a host or a guest."""
    if value and all(map(_is_guest, value.values())):
        return _guests(name, value)
    if "vm_info" in value:
        return _guests(name, _mapping(value["vm_info"]))
    if {"definition", "changes"} <= value.keys():
        return _update(value)
    return _nested(value, "  ")


def _list_block(name, value):
    """Format a text, a number or a list, which is the answer of one host."""
    if _are_backups(value):
        return _backups(name, value)
    if isinstance(value, (list, tuple)):
        if not value:
            return f"{name}: none"
        if all(not isinstance(item, (dict, list)) for item in value):
            return "\n".join(_listed(f"{name}: ", value))
        return "\n".join([name, *_nested(value, "  ")])
    text = str(value) if isinstance(value, bool) else _plain(value)  # as Salt answers a call
    if "\n" in text:
        return f"{name}\n  {text}"
    return "\n".join(_sentence(f"{name}: ", text or "none"))


def _titled_table(value, title):
    """A sentence and the table below it; without rows, only the sentence."""
    rows = value.get("table") or []
    if not isinstance(rows, list) or not all(isinstance(row, list) for row in rows):
        return "\n".join(_nested(value))
    if len(rows) < 2 or not rows[0]:
        return "\n".join(_sentence("", value.get("empty") or title or "none"))
    title = "\n".join(_sentence("", title))
    return _table(rows, _mapping(value.get("columns")), title)


def _displays(name, value):
    """What opens the displays and serial ports of a guest, as ``virt.display`` lists them."""
    devices = value.get("displays")
    if not isinstance(devices, list) or not devices:
        return
    if value.get("state") not in ("running", "paused"):
        yield from _sentence("", f"it can be opened after salt-run virt.start {name}")
        return
    for device in map(_mapping, devices):
        kind, listen = _plain(device.get("type")), _plain(device.get("listen"))
        commands = [device.get("tunnel"), device.get("connect")]
        location = f" listens on {listen} of {value.get('host')}" if listen else ""
        if device.get("socket"):
            location = f" is {_plain(device['socket'])} of {value.get('host')}"
        if kind == "serial":
            commands.insert(0, f"salt-run virt.console {name}")
            location = " port: on the master, or as root of its host"
        elif device.get("tunnel"):
            location += " only: leave the first command running"
        yield from _sentence("", f"{kind}{location}")
        yield from (f"  {_plain(command)}" for command in commands if command)


def _last_seen(value):
    """The line about the guests of a host that does not answer."""
    names = value.get("guests")
    if isinstance(names, list) and names:
        yield from _sentence(f"  last seen there ({value.get('at')}): ", names)


def _are_backups(value):
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(item, dict) and "backup_id" in item for item in value)
    )


def _backups(target, backups):
    """The table of ``virt.backups``: one row for each backup, followed by errors."""
    head = ["guest", "backup", "taken (UTC)", "host", "disks", "size", "consistency", "good"]
    rows: list[list[object]] = [[*head]]
    wrong = []
    for backup in backups:
        number = str(backup["backup_id"]).partition("-")[0]
        parents = _mapping(backup.get("disks")).values()
        is_full = all(parent == "full" for parent in parents)
        label = backup.get("guest") or backup.get("uuid")
        rows.append([
            label, int(number) if number.isdecimal() else number,
            str(backup.get("taken_at") or "")[:16].replace("T", " "), backup.get("host"),
            ("full" if is_full else "incremental") if parents else None,
            {"bytes": backup.get("stored_bytes") or 0}, backup.get("consistency"),
            "NO" if backup.get("problem") else "yes",
        ])  # fmt: skip
        if backup.get("problem"):
            wrong += _sentence(f"  {label} {number}: ", backup["problem"])
    columns = {"host": {"drop": 1}, "disks": {"drop": 2}}
    return "\n".join([_table(rows, columns, f"{target}:"), *wrong])


def _command_output(value):
    """The output of a command in a guest, and its result if it failed."""
    texts = [value["stdout"], value.get("stderr")]
    texts = [text.expandtabs() for text in texts if isinstance(text, str) and text]
    if not texts or value.get("result") is not True:
        texts.append(value["comment"])
    return "\n".join(_text(text, "\n") for text in texts)


def _nested(value, indent=""):
    """Indented ``key: value`` lines; records with the same keys are a table."""
    if isinstance(value, dict) and _are_named(value):
        value = [*value.values()]
    if isinstance(value, dict):
        return [line for pair in value.items() for line in _pair(*pair, indent)]
    if _are_records(value):
        return _records(value, indent)
    lines = []
    for item in value:
        if isinstance(item, (dict, list)):
            below = _nested(item, f"{indent}  ")
            lines += [f"{indent}- {below[0].strip()}", *below[1:]] if below else []
        else:
            lines.append(f"{indent}{_plain(item)}")
    return lines


def _pair(key, value, indent):
    label, text = _measured(key, value)
    if isinstance(value, dict) and value:
        return [f"{indent}{label}:", *_nested(value, f"{indent}  ")]
    if isinstance(value, list) and any(isinstance(item, (dict, list)) for item in value):
        return [f"{indent}{label}:", *_nested(value, f"{indent}  ")]
    if isinstance(value, (list, tuple)) and value:
        return _listed(f"{indent}{label}: ", value)
    return _folded(f"{indent}{label}: ", "none" if value in (*_NOTHING, [], {}) else text)


# what libvirt or Salt 3007 says where there is nothing
_NOTHING = (None, "", "None", "N/A")


def _listed(label, values):
    """A list in the line of its label, or below it if it needs more lines and has sentences."""
    lines = _folded(label, _plain(values))
    if len(lines) < 2 or len(values) < 2 or not any(" " in _plain(value) for value in values):
        return lines
    indent = " " * (len(label) - len(label.lstrip()) + 2)
    return [label.rstrip(), *(line for value in values for line in _folded(indent, _plain(value)))]


def _folded(label, text):
    """A label and a text in lines that fit the terminal."""
    indent = " " * (len(label) - len(label.lstrip()) + 2)
    return textwrap.wrap(
        _doubled(f"{label}{text}"), _width(), subsequent_indent=indent,
        break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def _sentence(label, text):
    """As _folded on a terminal. Elsewhere, as in a pipe to grep, it is one line."""
    if sys.stdout.isatty():
        return _folded(label, _plain(text)) or [""]
    return [f"{label}{_plain(text)}"]


def _measured(key, value):
    """The name of a value without its unit, and the value with it."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if key == "cputime":
            return key, _period(value / 1e9)
        if key in _SCALES:
            return key, _size(value * _SCALES[key])
        for ending, scale in _ENDINGS.items():
            if key.endswith(ending):
                return key.removesuffix(ending), _size(value * scale)
        if key.endswith("_s"):
            return key.removesuffix("_s"), _period(value)
    return key, _plain(value)


def _are_named(value):
    """Whether these are records by the name that each of them has."""
    records = [*value.values()]
    return (
        _are_records(records)
        and "name" in records[0]
        and all(record["name"] == name for name, record in value.items())
    )


def _are_records(value):
    return bool(value) and all(
        isinstance(item, dict)
        and item.keys() == value[0].keys()
        and not any(isinstance(field, (dict, list)) and field for field in item.values())
        for item in value
    )


def _records(records, indent):
    heads = [_measured(key, records[0][key])[0] for key in records[0]]
    rows = [[_measured(*pair)[1] for pair in record.items()] for record in records]
    return _table([heads, *rows], indent=indent).splitlines()


def _update(value):
    """What ``virt.update`` changed on a host, and what waits for the next start."""
    changed = [key for key in ("cpu", "mem") if value.get(key) is True]
    lines = [f"  {_NAMES[key]} changed" for key in changed]
    for kind, actions in value.items():
        for action in ("attached", "detached", "updated"):
            devices = _mapping(actions).get(action)
            if isinstance(devices, list):
                lines += [f"  {_device(kind, xml)} {action}" for xml in devices]
    made = value["changes"] if isinstance(value["changes"], list) else []
    paths = [_mapping(change).get("path") for change in made]
    described = ("vcpu", "current_memory", "memory", "max_memory", "cpu", "disks", "interfaces")
    further = [str(path) for path in paths if not str(path).startswith(described)]
    if further:
        lines += _folded("  changed: ", ", ".join(path.replace("_", " ") for path in further))
    for label, key in (("now", "errors"), ("left unchanged", "warnings")):
        lines += [f"  {'refused ' if key == 'errors' else ''}{label}: {_plain(text)}"
                  for text in value.get(key) or []]  # fmt: skip
    lines += [f"  at the next start: {_plain(text)}" for text in value.get("pending") or []]
    return list(dict.fromkeys(lines)) or ["  nothing to change"]


_NAMES = {"cpu": "CPUs", "mem": "memory"}


def _device(kind, xml):
    """A device of a guest, from its XML."""
    matches = (
        re.search(rf"<{tag}[^>]*\b{attribute}=['\"]([^'\"]+)", str(xml))
        for tag, attribute in (("target", "dev"), ("mac", "address"), ("source", "file"))
    )
    values = [match[1] for match in matches if match]
    return " ".join([kind, *values[:1]])


def _is_guest(value):
    """Whether it is the data of a guest, perhaps of one that cannot be read."""
    if not isinstance(value, dict):
        return False
    return any(keys <= value.keys() for keys in ({"cpu", "mem", "state"}, {"state", "error"}))


def _guests(host, guests):
    return [_guest(host, guest, guests[guest]) for guest in guests]


def _guest(host, name, info):
    if not isinstance(info, dict):
        return "\n".join(_sentence(f"  {name}: ", info))
    lines = [f"  {name}"]
    if "error" in info:
        lines += _folded("    Error: ", _plain(info["error"]))
    for label, key in (("CPU", "cpu"), ("Memory", "mem"), ("State", "state")):
        if key in info:
            lines += _folded(f"    {label}: ", _measured(key, info[key])[1])
    if isinstance(info.get("pending"), list) and info["pending"]:
        lines += _folded("    At the next start: ", _plain(info["pending"]))
    for line in _graphics(host, name, _mapping(info.get("graphics"))):
        lines += _folded("", line)
    for target, disk in _mapping(info.get("disks")).items():
        lines += _disk(target, _mapping(disk))
    for mac, nic in _mapping(info.get("nics")).items():
        lines += _nic(mac, _mapping(nic))
    lines += _about(info)
    return "\n".join(lines)


# what virt.vm_info says besides, in this order
_ABOUT = (
    ("addresses", "Addresses"), ("owner", "Owner"), ("labels", "Labels"),
    ("autostart", "Autostart"), ("snapshots", "Snapshots"), ("backups", "Backups"),
    ("ha", "High Availability"), ("usage", "Usage"), ("unknown", "Unknown"), ("uuid", "UUID"),
)  # fmt: skip


def _about(info):
    for key, label in _ABOUT:
        value = info.get(key)
        if value in (None, [], {}, ""):
            continue
        if key in _SENTENCES and isinstance(value, (dict, list)):
            text = _SENTENCES[key](value)
        elif isinstance(value, dict):
            text = "; ".join(f"{name}: {_plain(item)}" for name, item in value.items())
        else:
            text = _plain(value)
        yield from _folded(f"    {label}: ", text)


def _snapshots(snapshots):
    """The names of snapshots, the current one marked."""
    return ", ".join(
        f"{_plain(item.get('name'))}{' (current)' if item.get('current') is True else ''}"
        for item in map(_mapping, snapshots)
    )


def _last_backup(backups):
    last = _mapping(_mapping(backups).get("last"))
    count = _mapping(backups).get("count")
    if not last:
        return f"{_plain(count)}, no good one" if count else "none"
    age = _cell({"seconds": last.get("age_s")})
    return f"{_plain(count)}, the last good one {age} old at {_plain(last.get('target'))}"


def _usage(usage):
    """What a guest uses now; what is unknown is left out."""
    get = _mapping(usage).get
    memory = _cell({"bytes": get("memory_bytes")})
    used = _cell({"bytes": get("memory_used_bytes")})
    parts = [
        ("CPU", _cell({"percent": get("cpu_percent")})),
        ("memory", f"{used} of {memory}" if used else memory),
        *((label, _cell({"rate": get(key)})) for label, key in _RATES),
    ]
    return ", ".join(f"{label} {text}" for label, text in parts if text)


_RATES = (
    ("disk read", "disk_read_bytes_s"), ("written", "disk_written_bytes_s"),
    ("network received", "network_received_bytes_s"), ("sent", "network_sent_bytes_s"),
)  # fmt: skip
_SENTENCES = {"snapshots": _snapshots, "backups": _last_backup, "usage": _usage}


def _graphics(host, name, graphics):
    """The address of a display, and where it listens; if only its host can reach it, a hint how to
    connect."""
    kind, port, listen = (graphics.get(key) for key in ("type", "port", "listen"))
    if not kind or str(kind).lower() == "none":
        return []
    if port in (None, "None", "-1", -1, ""):
        return [f"    Graphics: {kind}"]
    address = f"    Graphics: {kind} - {host}:{port}"
    if str(listen).startswith("127.") or listen in ("::1", "localhost"):
        return [address, f"      Listens on {listen} of {host}: see virt.display {name}"]
    if listen in (None, "None", "", "0.0.0.0", "::"):
        return [address, "      Listens on all addresses"]
    return [address, f"      Listens on {listen}"]


def _disk(target, disk):
    lines = [f"    Disk - {target}:"]
    size = disk.get("virtual size", disk.get("disk size"))
    if size is not None:
        lines.append(f"      Size: {_size(size)}")
    lines += _folded("      File: ", _plain(disk.get("file") or disk.get("source") or "none"))
    if disk.get("file format") or disk.get("format"):
        lines += _folded("      File Format: ", _plain(disk.get("file format") or disk["format"]))
    if disk.get("backing file"):
        lines += _folded("      Backing File: ", _plain(_backing(disk["backing file"])))
    if disk.get("error"):
        lines += _folded("      Error: ", _plain(disk["error"]))
    return lines


def _backing(backing):
    return backing.get("file", backing) if isinstance(backing, dict) else backing


def _nic(mac, nic):
    source = nic.get("source")
    if isinstance(source, dict):
        source = next((v for v in source.values() if v), None)
    return [
        f"    Nic - {mac}:",
        *_folded("      Source: ", _plain(source or "none")),
        *_folded("      Type: ", _plain(nic.get("type") or "none")),
    ]


def _size(value):
    """``1536`` as ``1.5 KiB``, as the library writes it; what is not a number stays as it is."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    unit, larger = "B", ["TiB", "GiB", "MiB", "KiB"]
    while abs(value) >= 1024 and larger:
        value, unit = value / 1024, larger.pop()
    return f"{value:.0f} {unit}" if unit == "B" or value > 999 else f"{value:.3g} {unit}"


def _period(seconds):
    """``90`` as ``1 min 30 s``: the two largest units."""
    if isinstance(seconds, float) and not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0:
        return f"-{_period(-seconds)}"
    seconds, units = round(seconds), list[str]()
    for length, unit in _PERIODS:
        number, seconds = divmod(seconds, length)
        if number or (unit == "s" and not units):
            units.append(f"{number} {unit}")
    return " ".join(units[:2])


def _width():
    """The columns of the terminal; 80 if there is none, or it is narrower."""
    return max(_COLUMNS, shutil.get_terminal_size((_COLUMNS, 24)).columns)


def _table(rows, options=None, title=None, indent=""):
    """Format rows of cells, the first of which is the header. options: of columns by header, as the
    runner's ``columns``."""
    head, *body = ([*row] for row in rows)
    cells = zip(*(_filled(row, len(head)) for row in body), strict=True)
    columns = [
        _Column(_plain(name), values, _mapping((options or {}).get(_plain(name))))
        for name, values in zip(head, cells, strict=True)
    ]
    below = [column for column in columns if column.is_below]
    shown = [column for column in columns if not column.is_blank and not column.is_below]
    lines = _drawn(shown, _width() - len(indent))
    texts = [text for row in zip(*(c.texts for c in below), strict=True) for text in row if text]
    lines += [line for text in texts for line in _sentence("", text)]
    return "\n".join([title, *lines] if title else [indent + line for line in lines])


def _filled(row, length):
    return [*row, *[None] * length][:length]


def _doubled(text):
    """A text with a filler after each character that takes two columns of a terminal, so that its
    length is its width."""
    if text.isascii():
        return text
    wide = ("W", "F")
    return "".join(f"{c}{_FILLER}" if unicodedata.east_asian_width(c) in wide else c for c in text)


class _Wrapper(textwrap.TextWrapper):
    """Breaks no word between a wide character and its filler."""

    def _handle_long_word(self, chunks, line, length, width):
        space = width - length
        if chunks[-1][space : space + 1] == _FILLER:
            width -= space > 1
        super()._handle_long_word(chunks, line, length, width)


def _shortened(text):
    """A text without its end if no screen would show it: a host can send any length."""
    return text if len(text) <= _CELL else f"{text[:_CELL]}..."


class _Column:
    """A column of a table: its header, its cells and how narrow it can be."""

    def __init__(self, head, values, options):
        self.head, self.values = _doubled(head), values
        self.drop, self.is_below = options.get("drop"), bool(options.get("below"))
        self.texts = [_doubled(_shortened(_cell(value))) for value in values]
        self.is_blank = not any(self.texts)
        self.is_right = all(
            isinstance(value, (int, float, dict, type(None))) and not isinstance(value, bool)
            for value in values
        ) and not any(isinstance(value, dict) and "bar" in value for value in values)
        self.is_whole = bool(options.get("whole"))
        self.is_under = bool(options.get("under"))
        self.is_folding = any(isinstance(value, (str, list)) for value in values)
        self.width = self.natural = max(map(len, [self.head, *self.texts]))

    def without_bars(self):
        """The column with numbers instead of bars."""
        percents = [
            {"percent": 100 * value["bar"]} if isinstance(value, dict) and "bar" in value else value
            for value in self.values
        ]
        return _Column(self.head, percents, {"drop": self.drop, "whole": self.is_whole})

    def least(self, longest=None):
        """The smallest width. longest: longer words are broken."""
        cap = longest or self.natural
        lengths = [0, *(len(part) for part in self.head.split())]
        if not self.is_folding or (self.is_whole and longest is None):
            return max([*lengths, *map(len, self.texts)])
        lengths += [len(part) for text in self.texts for part in text.split()]
        floor = min(self.natural, longest or _FOLDED)
        return max(floor, min(max(lengths), cap))

    def cell(self, text):
        """The lines of a cell."""
        lines = _Wrapper(self.width, break_on_hyphens=False).wrap(text) or [""]
        return [line.rjust(self.width) if self.is_right else line.ljust(self.width)
                for line in lines]  # fmt: skip


def _drawn(columns, width):
    """The lines of the columns: as they are, folded, without bars, without the columns that may be
    dropped, with broken words, or a block for each row."""
    if any(column.is_under for column in columns) and _natural_width(columns) > width:
        return _with_lines_under(columns, width)
    if _fits(columns, width):
        return _grid(columns)
    columns = [column.without_bars() for column in columns]
    droppable = sorted((c for c in columns if c.drop is not None), key=lambda c: c.drop)
    for number in range(len(droppable) + 1):
        remaining = [column for column in columns if column not in droppable[:number]]
        if _fits(remaining, width):
            return _grid(remaining)
    for longest in (_FOLDED, _BROKEN):
        if _fits(remaining, width, longest):
            return _grid(remaining)
    return _rows_as_blocks(columns, width)


def _fits(columns, width, longest=None):
    """Make the columns as narrow as necessary, the widest ones first; return whether they fit."""
    least = [column.least(longest) for column in columns]
    room = width - len(_GAP) * (len(columns) - 1)
    low, high = 0, width  # limits of the widths: all columns fit, and perhaps do not
    while low < high:
        limit = (low + high + 1) // 2
        total = sum(_limited(column, floor, limit)
                    for column, floor in zip(columns, least, strict=True))  # fmt: skip
        low, high = (limit, high) if total <= room else (low, limit - 1)
    for column, floor in zip(columns, least, strict=True):
        column.width = _limited(column, floor, low)
    return sum(column.width for column in columns) <= room


def _limited(column, floor, limit):
    return max(floor, min(column.natural, limit))


def _natural_width(columns):
    return sum(column.natural for column in columns) + len(_GAP) * (len(columns) - 1)


def _with_lines_under(columns, width):
    """The rows without their long columns, each followed by the texts of these."""
    short = [column for column in columns if not column.is_under]
    texts = zip(*(column.texts for column in columns if column.is_under), strict=True)
    under = [
        [line for text in row if text for line in _sentence("  ", text)] for row in texts
    ]  # fmt: skip
    if not short or not _fits(short, width):
        return _rows_as_blocks(columns, width)
    return _grid(short, under)


def _grid(columns, under=()):
    """The lines of the rows; a short header stands next to its column. under: further lines of each
    row."""
    heads = [column.cell(column.head) for column in columns]
    height = max(map(len, heads), default=0)
    lines = _side_by_side([[""] * (height - len(head)) + head for head in heads], columns)
    rows = zip(*(column.texts for column in columns), strict=True)
    for row, further in itertools.zip_longest(rows, under, fillvalue=()):
        cells = [column.cell(text) for column, text in zip(columns, row, strict=True)]
        lines += [*_side_by_side(cells, columns), *further]
    return lines


def _side_by_side(cells, columns):
    lines = []
    for number in range(max(map(len, cells), default=0)):
        parts = (
            (cell[number] if number < len(cell) else "").ljust(column.width)
            for column, cell in zip(columns, cells, strict=True)
        )
        lines.append(_GAP.join(parts).rstrip())
    return lines


def _rows_as_blocks(columns, width):
    lines = []
    for index in range(len(columns[0].texts)):
        for number, column in enumerate(columns):
            if column.texts[index]:
                label = f"{'' if number == 0 else '  '}{column.head}: "
                lines += textwrap.wrap(label + column.texts[index], width, subsequent_indent="    ")
    return lines


def _cell(value):
    """The text of a cell; a dictionary has the kind of its number."""
    if isinstance(value, dict) and len(value) == 1:
        [(kind, number)] = value.items()
        if number is None:
            return ""
        is_number = isinstance(number, (int, float)) and not isinstance(number, bool)
        if is_number and kind in _KINDS:
            return _KINDS[kind](number)
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return _plain(value)


def _drawn_bar(used):
    filled = round(_BAR * min(1.0, max(0.0, used)))
    return "[" + "#" * filled + "." * (_BAR - filled) + f"] {used * 100:3.0f} %"


_KINDS = {
    "bar": _drawn_bar,
    "bytes": _size,
    "rate": lambda number: f"{_size(number)}/s",
    "percent": lambda number: f"{number:.0f} %",
    "seconds": _period,
}
