"""Resumed downloads: the server's statements are checked against the request. A real server answers
as a test chooses. The images are raw: only their length would show that one is composed wrongly."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from saltvirt import errors
from saltvirt.images import cache, free_space, http_answer, web
from tests.functional import ftpd

KIB = 1024
LIBRARY = Path(__file__).resolve().parents[3] / "_utils"
# a raw disk with a partition table, every block another one
OLD = b"\0" * 510 + b"\x55\xaa" + bytes(i // 256 % 251 for i in range(512, 600 * KIB))
NEW = OLD[:512] + bytes(255 - byte for byte in OLD[512:])
HALF = 200 * KIB
EVERY = {"ETag": '"1"', "Last-Modified": "Sun, 01 Nov 2026 00:00:00 GMT"}


class Server(BaseHTTPRequestHandler):
    """Cuts the first answer after HALF; ``then`` gives the next ones: called with the byte that
    was asked from, it returns (status, headers, body)."""

    protocol_version = "HTTP/1.1"

    def do_HEAD(self):
        self.answer(200, {**self.server.head, "Content-Length": str(len(OLD))}, b"")

    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.log.append(asked)
        if len(self.server.log) == 1:
            self.answer(200, {**self.server.head, "Content-Length": str(len(OLD))}, OLD[:HALF])
            return
        start = int(asked.removeprefix("bytes=").rstrip("-")) if asked else 0
        then = self.server.then
        step = then[min(len(self.server.log) - 2, len(then) - 1)]
        self.answer(*step(start))

    def answer(self, status, headers, body):
        self.close_connection = True
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args):
        pass


def part(start, body=OLD, said=EVERY, **headers):
    """An honest answer to a range."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    where = f"bytes {start}-{len(body) - 1}/{len(body)}"
    sent = {**said, "Content-Range": where, "Content-Length": str(len(body) - start), **names}
    return 206, {k: v for k, v in sent.items() if v is not None}, body[start:]


def whole(_start=0, body=OLD, said=EVERY, **headers):
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return 200, {**said, "Content-Length": str(len(body)), **names}, body


def chunks(body, end=b"0\r\n\r\n"):
    return f"{len(body):x}\r\n".encode() + body + b"\r\n" + end


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setattr(web, "_PAUSE_S", 0.01)
    found = ThreadingHTTPServer(("127.0.0.1", 0), Server)
    found.head, found.then, found.log = dict(EVERY), [part], []
    found.address = f"http://127.0.0.1:{found.server_address[1]}/debian.raw"
    threading.Thread(target=found.serve_forever, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


def test_what_fits_is_gone_on_with(server, tmp_path):
    found = cache.fetch(server.address, tmp_path)
    assert Path(found.path).read_bytes() == OLD
    assert server.log == [None, f"bytes={HALF}-"]


UNFIT = {
    "from the beginning": lambda s: part(
        0, Content_Range=f"bytes 0-{len(OLD) - 1}/{len(OLD)}", Content_Length=str(len(OLD))
    ),
    "from a little before": lambda s: part(s - KIB),
    "from a little after": lambda s: part(s + KIB),
    "of a longer file": lambda s: part(s, NEW + b"more"),
    "of a shorter file": lambda s: part(s, NEW[: 400 * KIB]),
    "of another ETag": lambda s: part(s, NEW, {**EVERY, "ETag": '"2"'}),
    "of another day": lambda s: part(s, NEW, {**EVERY, "Last-Modified": "today"}),
    "of no ETag": lambda s: part(s, NEW, {}),
    "without where": lambda s: part(s, Content_Range=None),
    "with nonsense": lambda s: part(s, Content_Range="bytes 5-4/x"),
    "in several parts": lambda s: part(
        s, Content_Range=None, Content_Type="multipart/byteranges; boundary=x"
    ),
    "with more bytes than that": lambda s: part(s, Content_Length=str(len(OLD))),
    "with more chunks than that": lambda s: (
        206,
        {**part(s)[1], "Content-Length": "9", "Transfer-Encoding": "chunked"},
        chunks(OLD[s:] + b"more"),
    ),
    "nothing, as if all were there": lambda s: (416, {"Content-Length": "0"}, b""),
}


@pytest.mark.parametrize("how", UNFIT)
def test_another_part_is_never_put_behind_what_is_there(server, tmp_path, how):
    """It is begun anew; the next answer is the whole file."""
    server.then = [UNFIT[how], whole]
    found = cache.fetch(server.address, tmp_path)
    assert Path(found.path).read_bytes() == OLD
    assert server.log[1:] == [f"bytes={HALF}-", None]


@pytest.mark.parametrize("how", ["from the beginning", "of no ETag", "with nonsense"])
def test_a_server_that_goes_on_so_is_one_line_and_nothing_is_kept(server, tmp_path, how):
    server.then = [UNFIT[how], lambda s: (*whole()[:2], OLD[:HALF])]
    with pytest.raises(errors.ImageError, match=r"^cannot fetch http://127[^\n]*debian\.raw: "):
        cache.fetch(server.address, tmp_path)
    assert [f for f in os.listdir(tmp_path / "_base") if not f.startswith(".")] == []


def test_a_whole_answer_replaces_what_is_there(server, tmp_path):
    """The file changed, so If-Range gives all of it: its version is the one that is noted."""
    server.then = [lambda s: whole(body=NEW, said={**EVERY, "ETag": '"2"'})]
    found = cache.fetch(server.address, tmp_path)
    assert Path(found.path).read_bytes() == NEW
    (index,) = (tmp_path / "_base" / ".index").glob("*.json")
    assert json.loads(index.read_text())["version"]["ETag"] == '"2"'


def test_what_another_version_began_is_ended_by_that_one(server, tmp_path):
    """Killed or cut after the change, too: the rest is asked for of what is there."""
    second = {**EVERY, "ETag": '"2"'}
    server.then = [
        lambda s: (200, whole(body=NEW, said=second)[1], NEW[: 300 * KIB]),
        lambda s: part(s, NEW, second),
    ]
    found = cache.fetch(server.address, tmp_path)
    assert Path(found.path).read_bytes() == NEW
    assert server.log == [None, f"bytes={HALF}-", f"bytes={300 * KIB}-"]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda s: whole(Content_Encoding="gzip"), "Content-Encoding gzip"),
        (lambda s: (*part(s)[:2], b""), "IncompleteRead"),
        (lambda s: whole(Content_Length="-5"), "Content-Length is '-5'"),
        (lambda s: whole(body=NEW[: 300 * KIB]), f"{300 * KIB} now: it changed"),
        (lambda s: whole(body=NEW + b"more"), "it changed"),
        (lambda s: (204, {}, b""), "HTTP 204"),
        (lambda s: (200, {**EVERY, "Transfer-Encoding": "gzip, chunked"}, b""), "Transfer-Enc"),
        (
            lambda s: (200, {**EVERY, "Transfer-Encoding": "chunked"}, chunks(OLD[:HALF], b"")),
            "IncompleteRead",
        ),
        (
            lambda s: (200, {**EVERY, "Transfer-Encoding": "chunked"}, chunks(OLD[:HALF])),
            "IncompleteRead",
        ),
        (lambda s: (200, EVERY, OLD[:HALF]), "IncompleteRead"),
        (lambda s: (302, {"Location": "/debian.raw"}, b""), "HTTP 302"),
        (lambda s: (206, {**EVERY, "Content-Length": "9"}, b"x" * 9), "HTTP 206|Content-Range"),
    ],
)
def test_what_is_not_all_of_it_is_no_image(server, tmp_path, answer, words):
    server.then = [answer]
    with pytest.raises(errors.ImageError, match=words):
        cache.fetch(server.address, tmp_path)
    assert [f for f in os.listdir(tmp_path / "_base") if not f.startswith(".")] == []


def test_a_length_that_only_the_head_told_is_held(server, tmp_path):
    server.then = [lambda s: (200, {**EVERY, "Transfer-Encoding": "chunked"}, chunks(OLD))]
    assert Path(cache.fetch(server.address, tmp_path).path).read_bytes() == OLD


class _Longer:
    """An answer of more than was announced, and not without end: the disk is everybody's."""

    def __init__(self, blocks):
        self.blocks = blocks

    def read(self, size):
        self.blocks -= 1
        return b"x" * size if self.blocks >= 0 else b""


def test_what_is_more_than_announced_is_not_written(tmp_path):
    sent = http_answer.BodyRange(0, 3 * web._BLOCK, 3 * web._BLOCK, {})
    with (
        open(tmp_path / "part", "wb") as file,
        pytest.raises(http_answer.UnusableAnswer, match="more than the"),
    ):
        web._receive(_Longer(9), file, sent, lambda *_: None)
    assert os.path.getsize(tmp_path / "part") == 3 * web._BLOCK


def test_by_ftp_more_than_announced_is_not_written(tmp_path, monkeypatch):
    monkeypatch.setattr(web, "_PAUSE_S", 0.01)
    (tmp_path / "ftp").mkdir()
    (tmp_path / "ftp" / "debian.raw").write_bytes(OLD)
    part_file, largest = tmp_path / "part", []
    server = ftpd.Server(tmp_path / "ftp", "me", "s3cret")
    try:
        address = f"ftp://me:s3cret@{server.address}/debian.raw"
        version = {**web.client(address).version(address), "size": str(HALF)}
        with pytest.raises(errors.ImageError, match=f"sends more than {HALF} bytes"):
            web.client(address).fetch(
                address, str(part_file), version, lambda done, _: largest.append(done)
            )
        assert max(largest) <= HALF
    finally:
        server.stop()


def test_the_room_is_looked_at_again_when_a_download_begins_anew(tmp_path, monkeypatch):
    """The second file may be larger than the first one."""
    limit = free_space.SpaceGuard("image x", tmp_path)
    monkeypatch.setattr(
        free_space.shutil, "disk_usage", lambda _: SimpleNamespace(total=1, free=10**10)
    )
    limit.check(10**9, None)
    limit.check(10**9 + 1, None)
    with pytest.raises(errors.Refused, match="free some space"):
        limit.check(1, 2 * 10**10)


def test_two_addresses_of_one_content_are_written_down_one_after_the_other(tmp_path, monkeypatch):
    """Both have one note, of which one would take away the other's half."""
    store, at_work, most = cache._Folder(tmp_path), [], []
    store.make()
    write = cache.atomic_file.write

    def slowly(path, data, **options):
        at_work.append(path)
        most.append(len(at_work))
        time.sleep(0.01)
        write(path, data, **options)
        at_work.pop()

    monkeypatch.setattr(cache.atomic_file, "write", slowly)
    writers = [
        threading.Thread(target=store.write, args=({"n": n}, ".meta", "x.json")) for n in range(5)
    ]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert max(most) == 1
    assert len(most) == 5
    assert os.listdir(store.path(".meta")) == ["x.json"]


def test_without_a_sign_of_its_version_nothing_is_gone_on_with(server, tmp_path):
    server.head, server.then = {}, [lambda s: whole(said={})]
    assert Path(cache.fetch(server.address, tmp_path).path).read_bytes() == OLD
    assert server.log == [None, None]


KILLED = """
import os, signal, sys
sys.path.insert(0, sys.argv[1])
from saltvirt.images import cache
def progress(done, total):
    if done >= int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
cache.fetch(sys.argv[2], sys.argv[3], progress=progress)
"""


def killed(address, images, after):
    argv = [sys.executable, "-c", KILLED, LIBRARY, address, images, str(after)]
    return subprocess.run([str(word) for word in argv], check=False).returncode


@pytest.mark.parametrize("after", [1, len(OLD)])
def test_a_killed_download_goes_on_and_one_that_was_whole_is_not_fetched_again(
    server, tmp_path, after
):
    server.log.append("no cut")
    server.then = [whole, part]
    address = server.address
    assert killed(address, tmp_path, after) == -signal.SIGKILL
    (left,) = (f for f in (tmp_path / "_base/.partial").iterdir() if f.suffix != ".json")
    have = left.stat().st_size
    assert have >= after
    assert Path(cache.fetch(address, tmp_path).path).read_bytes() == OLD
    assert server.log[2:] == ([f"bytes={have}-"] if have < len(OLD) else [])
    assert list((tmp_path / "_base/.partial").iterdir()) == []


def test_a_part_from_before_a_restart_of_the_host_is_not_gone_on_with(
    server, tmp_path, monkeypatch
):
    """With the power its last blocks may be gone, though the file is as long as it was."""
    server.log.append("no cut")
    server.then = [whole]
    assert killed(server.address, tmp_path, 1) == -signal.SIGKILL
    monkeypatch.setattr(web.boot, "current", lambda: "another")
    assert Path(cache.fetch(server.address, tmp_path).path).read_bytes() == OLD
    assert server.log[2:] == [None]


def test_a_full_disk_refuses_and_leaves_no_part(server, tmp_path, monkeypatch):
    """As a quota says it, which the free room does not show."""

    def write(*_args):
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(web, "_receive", write)
    with pytest.raises(errors.Refused, match="Disk quota exceeded"):
        cache.fetch(server.address, tmp_path)
    assert list((tmp_path / "_base/.partial").iterdir()) == []
    assert len(server.log) == 1, "asking again makes no room"


def test_by_ftp_a_full_disk_is_what_it_is_and_not_asked_again(tmp_path):
    (tmp_path / "ftp").mkdir()
    (tmp_path / "ftp" / "debian.raw").write_bytes(OLD)
    server = ftpd.Server(tmp_path / "ftp", "me", "s3cret")
    try:
        address = f"ftp://me:s3cret@{server.address}/debian.raw"
        version = web.client(address).version(address)
        with pytest.raises(OSError, match="No space left on device") as caught:
            web.client(address).fetch(address, "/dev/full", version, lambda *_: None)
        assert free_space.is_full(caught.value)
        assert sum(verb == "RETR" for verb, _ in server.log) == 1
    finally:
        server.stop()


def test_by_ftp_what_changes_meanwhile_is_begun_anew(tmp_path, monkeypatch):
    """Here nothing but the size and the time tell one file from another."""
    monkeypatch.setattr(web, "_PAUSE_S", 0.01)
    (tmp_path / "ftp").mkdir()
    file = tmp_path / "ftp" / "debian.raw"
    file.write_bytes(OLD)
    server = ftpd.Server(tmp_path / "ftp", "me", "s3cret")
    try:
        address = f"ftp://me:s3cret@{server.address}/debian.raw"
        version = web.client(address).version(address)
        file.write_bytes(NEW)
        os.utime(file, (0, time.time() - 5000))
        part_file = tmp_path / "part"
        web.write_part_note(str(part_file), version)
        part_file.write_bytes(OLD[:HALF])
        with pytest.raises(errors.ImageError, match="changed during"):
            web.client(address).fetch(address, str(part_file), version, lambda *_: None)
        assert part_file.read_bytes() == b""
    finally:
        server.stop()
