"""
Format the output of ``salt-run virt.*`` for a terminal.

It formats the answers of the ``virt`` runner: the guests of ``virt.query`` in the layout of Salt's
cloud controller tutorial, tables for functions that compare hosts, one line for an operation, and
progress lines. ``--out=json`` and other outputters get the plain data.

CLI Example:

.. code-block:: bash

    salt-run virt.query --out=virt_query
    salt 'hyper*' virt.full_info --out=virt_query
"""

import re
import shutil
import sys

# Outputters cannot import the library: Salt does not put it on their path. Hence the
# few lines for sizes and texts below.
# control characters of terminals and line breaks, which hosts must not send
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+")
_BAR = 10
_LEVELS = 50
_UP_AND_CLEAR = "\x1b[1A\x1b[2K"


def output(data, **kwargs):
    """
    Format data for the terminal.

    :param data: answer of a function of the ``virt`` runner or of ``virt.full_info``, or a progress
        event of the runner
    :return: lines of text; empty if there is nothing to show
    """
    if isinstance(data, dict) and "event" in data and "suffix" in data:
        return _progress(data["event"])
    if isinstance(data, dict) and set(data) == {"data", "outputter"}:
        data = data["data"]
    if not isinstance(data, dict):
        return _text(data, "\n")
    rows = {
        _text(key): _text(value, "\n  ") if isinstance(value, str) else _row(value)
        for key, value in data.items()
        if key != "retcode"
    }
    summaries = {key: value for key, value in rows.items() if _mapping(value).get("summary")}
    rows = summaries or rows  # of a verb for several guests: the table has each guest's result
    for fits, draw in ((_is_host_size, _hosts), (_is_listing, _listing)):
        matching = {key: value for key, value in rows.items() if fits(value)}
        if matching:
            rest = {key: value for key, value in rows.items() if key not in matching}
            return "\n".join([draw(matching), *(_block(*row) for row in rest.items())])
    return "\n".join(_block(*row) for row in rows.items())


def _text(value, break_=" "):
    """Format a value as text on one line, or on several lines that differ from those of this
    outputter."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return break_.join(_UNSEEN.sub(" ", line) for line in text.splitlines() or [""])


def _row(value):
    """Sanitize the data of one host or guest."""
    if isinstance(value, dict) and {"stdout", "exit_code", "comment"} <= value.keys():
        return {"comment": _command_output(value), "result": value.get("result")}
    return _sanitized(value)


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


def _progress(event):
    """Format a progress line. On a terminal, a line about a long step replaces the previous one; in
    a log, temporary lines are left out."""
    text = _text(event.get("message", ""))
    if not sys.stdout.isatty():
        return "" if event.get("passing") else text
    if "again" not in event:
        return text
    text = text[: shutil.get_terminal_size().columns - 1]  # a wrapped line cannot be erased
    return f"{_UP_AND_CLEAR}{text}" if event["again"] else text


def _is_host_size(value):
    return isinstance(value, dict) and "memory_free_mib" in value


def _hosts(hosts):
    """The table of ``virt.host_info``; "used" means allocated to guests."""
    rows = [["host", "cpus", "vcpus used", "free", "memory MiB", "used", "free MiB", "disk GiB",
             "free GiB", "guests", "running", "maintenance"]]  # fmt: skip
    for name, host in hosts.items():
        rows.append([
            name, host["cpus"], _bar(host["vcpus_used"], host["vcpus_free"]), host["vcpus_free"],
            host["memory_mib"], _bar(host["memory_used_mib"], host["memory_free_mib"]),
            host["memory_free_mib"], host["disk_gib"], host["disk_free_gib"], host["guests"],
            host["running"], host.get("maintenance"),
        ])  # fmt: skip
    if not any(row[-1] for row in rows[1:]):
        rows = [row[:-1] for row in rows]
    return _table(rows)


def _bar(used, free):
    return {"bar": used / (used + free) if used + free else 0}


def _is_listing(value):
    if not isinstance(value, dict) or "table" in value:
        return False
    return all(isinstance(names, list) for names in value.values())


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
    if not isinstance(value, dict):
        return _backups(name, value) if _are_backups(value) else f"{name}: {value}"
    if "error" in value and value.keys() <= {"error", "last_seen"}:
        last_seen = _last_seen(_mapping(value.get("last_seen")))
        return "\n".join([name, f"  {value['error']}", *last_seen])
    if "comment" in value and "result" in value:
        rows = value.get("table") or []
        return _table(rows, value["comment"]) if len(rows) > 1 else value["comment"]
    if "table" in value:
        return _table(value["table"], value.get("title"))
    if "vm_info" in value:
        guests = _mapping(value["vm_info"])
        return "\n".join([name, *(_guest(name, guest, guests[guest]) for guest in guests)])
    return "\n".join([name, *_pairs(value)])


def _last_seen(value):
    """The line about the guests of a host that does not answer."""
    names = value.get("guests")
    if isinstance(names, list) and names:
        yield f"  last seen there ({value.get('at')}): {', '.join(map(str, names))}"


def _are_backups(value):
    return isinstance(value, list) and all(
        isinstance(item, dict) and "backup_id" in item for item in value
    )


def _backups(target, backups):
    """The table of ``virt.backups``: one row for each backup, followed by errors."""
    head = ["guest", "backup", "when (UTC)", "host", "disks", "size", "as", "good"]
    rows: list[list[object]] = [[*head]]
    wrong = []
    for backup in backups:
        number = str(backup["backup_id"]).partition("-")[0]
        parents = _mapping(backup.get("disks")).values()
        is_full = all(parent == "full" for parent in parents)
        size = _size(backup.get("stored_bytes") or 0)
        label = backup.get("guest") or backup.get("uuid")
        rows.append([
            label, int(number) if number.isdecimal() else number,
            str(backup.get("taken_at") or "")[:16].replace("T", " "), backup.get("host"),
            ("full" if is_full else "incremental") if parents else None, size,
            backup.get("consistency"),
            "NO" if backup.get("problem") else "yes",
        ])  # fmt: skip
        if backup.get("problem"):
            wrong.append(f"  {label} {number}: {backup['problem']}")
    if not backups:
        return f"{target}: none"
    return "\n".join([_table(rows, f"{target}:"), *wrong])


def _command_output(value):
    """The output of a command in a guest, and its result if it failed."""
    texts = [value["stdout"], value.get("stderr")]
    texts = [text.expandtabs() for text in texts if isinstance(text, str) and text]
    if not texts or value.get("result") is not True:
        texts.append(value["comment"])
    return "\n".join(_text(text, "\n") for text in texts)


def _pairs(value):
    """Indented ``key value`` lines; lists are separated by commas."""
    width = max(map(len, map(str, value)), default=0)
    fields = {k: ", ".join(map(str, v)) if isinstance(v, list) else v for k, v in value.items()}
    return [f"  {key!s:{width}}  {val}" for key, val in fields.items()]


def _guest(host, name, info):
    if not isinstance(info, dict):
        return f"  {name}: {info}"
    lines = [f"  {name}"]
    if "error" in info:
        lines.append(f"    Error: {info['error']}")
    for label, key in (("CPU", "cpu"), ("Memory", "mem"), ("State", "state")):
        if key in info:
            lines.append(f"    {label}: {info[key]}")
    if isinstance(info.get("pending"), list) and info["pending"]:
        lines.append(f"    At the next start: {', '.join(map(str, info['pending']))}")
    lines += _graphics(host, name, _mapping(info.get("graphics")))
    for target, disk in _mapping(info.get("disks")).items():
        lines += _disk(target, _mapping(disk))
    for mac, nic in _mapping(info.get("nics")).items():
        lines += _nic(mac, _mapping(nic))
    return "\n".join(lines)


def _graphics(host, name, graphics):
    """The address of a display; if only its host can reach it, a hint how to connect."""
    kind, port, listen = (graphics.get(word) for word in ("type", "port", "listen"))
    if not kind or str(kind).lower() == "none":
        return []
    if port in (None, "None", "-1", -1, ""):
        return [f"    Graphics: {kind}"]
    if str(listen).startswith("127.") or listen in ("::1", "localhost"):
        return [f"    Graphics: {kind} - {listen}:{port} on {host} only: see virt.display {name}"]
    everywhere = listen in (None, "None", "", "0.0.0.0", "::")
    return [f"    Graphics: {kind} - {host if everywhere else listen}:{port}"]


def _disk(target, disk):
    lines = [f"    Disk - {target}:"]
    size = disk.get("virtual size", disk.get("disk size"))
    if size is not None:
        lines.append(f"      Size: {_size(size)}")
    lines.append(f"      File: {disk.get('file') or disk.get('source') or 'none'}")
    if disk.get("file format") or disk.get("format"):
        lines.append(f"      File Format: {disk.get('file format') or disk.get('format')}")
    if disk.get("backing file"):
        backing = disk["backing file"]
        lines.append(f"      Backing File: {_backing(backing)}")
    if disk.get("error"):
        lines.append(f"      Error: {disk['error']}")
    return lines


def _backing(backing):
    return backing.get("file", backing) if isinstance(backing, dict) else backing


def _nic(mac, nic):
    source = nic.get("source")
    if isinstance(source, dict):
        source = next((v for v in source.values() if v), None)
    return [
        f"    Nic - {mac}:",
        f"      Source: {source or 'none'}",
        f"      Type: {nic.get('type')}",
    ]


def _size(value):
    if not isinstance(value, (int, float)):
        return value
    for unit in ("B", "K", "M", "G"):
        if value < 1024:
            return f"{value:.0f}{unit}" if unit == "B" else f"{value:.1f}{unit}"
        value /= 1024
    return f"{value:.1f}T"


def _table(rows, title=None):
    """Format rows of cells, the first of which is the header; numbers are right-aligned, and bars
    are drawn last."""
    columns = list(zip(*rows, strict=True))
    drawn = [_column(column) for column in columns]
    lines = ["  ".join(cells).rstrip() for cells in zip(*drawn, strict=True)]
    return "\n".join([title, *lines] if title else lines)


def _column(column):
    cells = [_cell(value) for value in column]
    width = max(map(len, cells))
    right = all(isinstance(value, (int, float)) for value in column[1:])
    return [cell.rjust(width) if right else cell.ljust(width) for cell in cells]


def _cell(value):
    if isinstance(value, dict):  # {"bar": used fraction}
        filled = round(_BAR * min(1.0, max(0.0, value["bar"])))
        return "[" + "#" * filled + "." * (_BAR - filled) + f"] {value['bar'] * 100:3.0f} %"
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
    return "" if value is None else str(value)
