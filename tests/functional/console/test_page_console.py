"""Screen and serial console in the page: Chromium, nginx as the formula configures it, the proxy,
and a guest of a real QEMU."""

import contextlib
import os
import socket
import subprocess
from pathlib import Path

import jinja2
import pytest

browser = pytest.importorskip("tests.browser", reason="no selenium here: the tests' Python has it")
pytest.importorskip("libvirt")
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from saltvirt import errors
from saltvirt.console.master import verbs
from saltvirt.pki.common import certs
from saltvirt.pki.host import own_pair
from saltvirt.web import proxy
from tests.clock import until
from tests.functional import page_api
from tests.functional.daemon import libvirtd  # noqa: F401 - a fixture
from tests.functional.reached import Reached
from tests.functional.web.test_page import login, press, tile

FORMULA = page_api.FILES.parent
PICTURES = os.environ.get("PICTURES")
NEEDED = {"nginx": "/usr/sbin/nginx", "novnc": "/usr/share/novnc/core/rfb.js"}
MISSING = [name for name, path in NEEDED.items() if not Path(path).exists()] + browser.missing()

pytestmark = pytest.mark.skipif(bool(MISSING), reason=f"apt-get install {' '.join(MISSING)}")

NGINX = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{ access_log {folder}/access.log;
client_body_temp_path {folder}/a; proxy_temp_path {folder}/b;
fastcgi_temp_path {folder}/c; uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
include {folder}/front.conf; }}
"""


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.opened(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture
def cloud(libvirtd, tmp_path):  # noqa: F811
    found = Reached(libvirtd.uri, tmp_path)
    found.dom = found.guest()
    yield found
    found.close()


@pytest.fixture
def api(cloud):
    """Real tickets and pictures of the one guest; the rest is made up."""
    guest = {"cpu": 1, "mem": 65536, "state": "running", "uuid": cloud.dom.UUIDString()}
    found = page_api.Api({"hv1": {"web1": guest}})

    def real(make):
        def answer(given):
            try:
                return make(**given)
            except errors.VirtError as exc:
                return page_api.failed("web1", exc.text)

        return answer

    found.answers["ticket"] = real(
        lambda name, kind, digest, **more: verbs.ticket(
            cloud.fleet, "anna", name, kind, digest, **more
        )
    )
    found.answers["screenshot"] = real(lambda name: verbs.screenshot(cloud.fleet, name, 480, 0))
    yield found
    found.stop()


@pytest.fixture
def front(api, cloud, tmp_path):
    """The address of nginx, and its folder."""
    folder = tmp_path / "nginx"
    folder.mkdir()
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    pair = own_pair.generate("127.0.0.1", certs.SERVER)
    (folder / "crt").write_text(pair.certificate)
    (folder / "key").write_text(pair.key)
    template = jinja2.Template((FORMULA / "console/nginx.conf").read_text())
    (folder / "front.conf").write_text(
        template.render(port=port, api_port=api.server_port, reach_port=cloud.port,
                        certificate=folder / "crt", key=folder / "key")
    )  # fmt: skip
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder))
    argv = [NEEDED["nginx"], "-p", folder, "-c", folder / "nginx.conf", "-e", folder / "error.log"]
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as process:
        until(lambda: _listens(port), "nginx listens")
        yield f"https://127.0.0.1:{port}", folder
        process.terminate()


def _listens(port):
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True


@pytest.fixture
def page(front, chromium):
    url, _ = front
    chromium.looks(1280, 800)
    chromium.get(f"{url}/page")
    chromium.run("localStorage.clear(); sessionStorage.clear()")
    chromium.get(f"{url}/page")
    chromium.wrong()
    login(chromium)
    tile(chromium, "web1").click()
    yield chromium
    # its policy has stopped nothing, of noVNC either
    ours = ("Failed to load resource", "willReadFrequently")
    assert [one for one in chromium.wrong() if not any(word in one for word in ours)] == []
    chromium.get("about:blank")


def test_the_engine_tells_the_page_and_the_page_asks_nothing(
    front, api, cloud, chromium, monkeypatch
):
    """When it ends the line, the page asks by itself."""
    monkeypatch.setattr(proxy, "RECHECK_S", 0.2)
    cloud.opts["engines"] = ["virt_reach"]
    api.answers["watch"] = lambda given: verbs.watch(cloud.opts, "anna", **given)
    chromium.looks(1280, 800)
    chromium.get(f"{front[0]}/page")
    chromium.run("localStorage.clear(); sessionStorage.clear()")
    chromium.get(f"{front[0]}/page")
    login(chromium)
    chromium.call('.tile.running[data-name="web1"]')
    chromium.until_text("live", ".live.on")
    cloud.dom.suspend()
    cloud.rules.view.request_refresh(0)
    chromium.call('.tile.paused[data-name="web1"]')
    told = {"message": "half of it", "percent": 50}
    cloud.rules.view.handle_event("salt/virt/web1/clone/copy", told)
    chromium.until_text("half of it", ".strip")
    assert sorted(fun for fun, _ in api.calls) == ["help", "watch"]
    api.answers["resume"] = lambda _given: cloud.dom.resume() or page_api.done("web1", "resumed")
    tile(chromium, "web1").click()
    chromium.button("Resume", "main").click()  # what it has done itself it sees at once
    chromium.until_text("running on hv1", "main")
    assert "query" not in [fun for fun, _ in api.calls]
    cloud.opts["virt"]["rights"] = {"grants": []}  # he is shown out
    chromium.until(lambda: {"query", "host_info"} <= {fun for fun, _ in api.calls}, "it asks")
    chromium.get("about:blank")


LIT = """
const canvas = document.querySelector('dialog.console canvas');
if (!canvas) return null;
const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
let lit = 0;
for (let at = 0; at < data.length; at += 4)
    if (data[at] + data[at + 1] + data[at + 2] > 150) lit += 1;
return [canvas.width, canvas.height, lit];"""


# the size of the terminal's font; 0: a part of the terminal is out of sight
FITS = """
const terminal = document.querySelector('.terminal'), around = terminal.parentElement;
const fits = terminal.scrollWidth <= around.clientWidth
    && terminal.scrollHeight <= around.clientHeight;
return fits ? parseFloat(getComputedStyle(terminal).fontSize) : 0;"""


def shown(page):
    """The text of the serial console."""
    return page.run("return document.querySelector('.terminal').innerText")


def folder_of(tmp_path):
    return Path(PICTURES or tmp_path)


def test_the_screen_of_the_guest_and_its_keyboard(page, cloud, front, tmp_path):
    page.button("Screen", "main").click()
    page.until_text("Press Shift+Escape to leave", "dialog.console")
    found = page.until(lambda: (lit := page.run(LIT)) and lit[2] > 300 and lit, "the BIOS's words")
    assert found[:2] == [720, 400]  # as libvirt takes its picture: text of a VGA
    assert page.axe() == []
    page.cluster(folder_of(tmp_path) / "page-screen.webp")
    press(page, Keys.ESCAPE)  # of the guest: SeaBIOS lists what it can boot
    page.until(lambda: page.run(LIT)[2] > found[2] + 300, "the boot menu")
    ActionChains(page.driver).key_down(Keys.SHIFT).send_keys(Keys.ESCAPE).key_up(
        Keys.SHIFT
    ).perform()
    assert page.run("return document.activeElement.textContent") == "Close"
    press(page, Keys.ENTER)
    page.until(lambda: not page.all("dialog.console"), "it is closed")
    until(lambda: cloud.proxy.users == {}, "the line has ended")
    # neither the secret nor the ticket is in an address
    log = front[1] / "access.log"
    until(lambda: '"GET /reach HTTP/1.1" 101' in log.read_text(), "its line in the log")


def test_the_serial_console_both_ways_and_its_end(page, cloud, tmp_path):
    page.button("Serial console", "main").click()
    page.until_text("Press Shift+Escape to leave", "dialog.console")
    page.until(lambda: page.run("return document.activeElement.className") == "typed", "focus")
    for width, least in ((1280, 20), (640, 8)):  # it fills the window, and all of it can be seen
        page.looks(width, 800)
        page.until(lambda least=least: page.run(FITS) >= least, "a font of that size")
    page.looks(1280, 800)
    # a key that SeaBIOS was not ready to read is lost
    page.until(lambda: "boot device" in shown(page) or press(page, Keys.ESCAPE), "SeaBIOS' menu")
    assert page.axe() == []
    page.cluster(folder_of(tmp_path) / "page-serial.webp")
    cloud.dom.destroy()
    page.until_text("the guest has closed the connection.", "dialog.console .bad")
    page.button("Again", "dialog.console").click()
    page.until_text("no guest 'web1'", "dialog.console .bad")


def test_logging_out_ends_it(page, cloud):
    page.button("Screen", "main").click()
    page.until(lambda: page.run(LIT), "a screen")
    until(lambda: cloud.proxy.users == {("anna", False): 1}, "it is connected")
    page.run("document.querySelector('header.top').inert = false")
    page.run("[...document.querySelectorAll('header.top button')].at(-1).click()")
    page.call("#password")
    assert not page.all("dialog")
    until(lambda: cloud.proxy.users == {}, "the line has ended")


def test_a_picture_on_the_guests_page(page):
    page.button("Picture", "main").click()
    canvas = page.call("main canvas.picture")
    assert canvas.get_attribute("aria-label") == "Screen of web1"
    page.until(lambda: page.run("return arguments[0].width", canvas) == 720, "the picture")
    assert page.axe() == []


def test_who_may_not_sees_the_one_line(page, api):
    api.refuses = {"ticket", "screenshot"}
    page.button("Picture", "main").click()
    page.until_text("may not call virt.screenshot", "main .bad")
    page.button("Serial console", "main").click()
    page.until_text("may not call virt.ticket", "dialog.console .bad")


def test_what_is_not_set_up_is_said(page, api, cloud):
    api.has_novnc = False
    page.button("Screen", "main").click()
    page.until_text("apt-get install novnc", "dialog.console .bad")
    assert "ticket" not in [fun for fun, _ in api.calls]
    page.button("Close", "dialog.console").click()
    cloud.proxy.server.stop()
    page.button("Serial console", "main").click()
    page.until_text("the engine virt_reach", "dialog.console .bad")
    page.wrong()


def test_a_phone(page):
    page.looks(390, 844)
    page.button("Serial console", "main").click()
    page.until_text("Press Shift+Escape to leave", "dialog.console")
    assert page.axe() == []
    assert page.run("return document.documentElement.scrollWidth <= innerWidth")


def terminal(page, words):
    """What a terminal shows of these bytes, and what it answers."""
    return page.run(
        """const [words] = arguments;
        return import('/static/terminal.js').then(({Terminal}) => {
            const said = [], place = document.createElement('pre');
            const one = new Terminal(place, (text) => said.push(text));
            for (const part of words) one.write(new TextEncoder().encode(part));
            one.draw();
            const rows = [...place.children].map((row) => row.textContent.trimEnd());
            return [rows.join('\\n').trimEnd(), said, place.innerHTML];
        });""",
        words if isinstance(words, list) else [words],
    )


TERMINAL = {
    "one\r\ntwo": "one\ntwo",
    "abc\bX": "abX",
    "a\tb": "a       b",
    "\x1b[2J\x1b[3;5Hx": "\n\n    x",
    "abcdef\x1b[3D\x1b[K": "abc",
    "abcdef\x1b[4D\x1b[2P": "abef",
    "abc\x1b[1G\x1b[1@x": "xabc",
    "1\r\n2\r\n3\x1b[2;1H\x1b[1M": "1\n3",
    "1\r\n2\x1b[1;1H\x1b[1L": "\n1\n2",
    "\x1b[31;1mred\x1b[0m": "red",
    "\x1b]0;title\x07x": "x",
    "\x1b(0qqx\x1b(Bx": "──│x",
    "keep\x1b[?1049hother\x1b[?1049l": "keep",
    "a" * 81: "a" * 80 + "\na",
    "\x1b[2;3r\x1b[2;1H1\r\n2\r\n3": "\n2\n3",
    "\x1b[99999999;9999999Hx": "\n" * 24 + " " * 79 + "x",
    "<img src=x>\x1b[999zok": "<img src=x>ok",
    "x\x1b[1;2": "x",
    "\x00\x07\x7fx": "x",
}


@pytest.mark.parametrize("words", TERMINAL, ids=repr)
def test_the_terminal(page, words):
    shown, _, markup = terminal(page, words)
    assert shown == TERMINAL[words]
    assert terminal(page, list(words))[0] == shown  # however it is cut
    assert "<img" not in markup


def test_the_terminal_answers_and_forgets(page):
    assert terminal(page, "\x1b[5;7H\x1b[6n\x1b[c")[1] == ["\x1b[5;7R", "\x1b[?6c"]
    assert terminal(page, "\x1b]" + "x" * 200_000)[0].strip("x\n]") == ""
    assert terminal(page, "\n".join(map(str, range(9000))))[0].split()[-1] == "8999"
