"""A headless Chromium, and axe, which checks the accessibility of a page."""

import base64
import contextlib
import functools
import shutil

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException, TimeoutException
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from tests.lab import cache, paths, wheel

PATIENCE_S = 180
# a wheel that has axe 4.12.1
AXE = "axe-playwright-python==0.1.8 --hash=sha256:" \
    "fdd263c998388f1a8e67cad02677e612d946248bd44d163be5e8650ea31f95f8"  # fmt: skip
AXE_RUN = """axe.run(document).then((all) => all.violations.map(
    (one) => [one.id, one.nodes.map((node) => node.html.slice(0, 200))]))"""


def missing():
    """The programs that are not installed."""
    return [name for name in ("chromium", "chromedriver") if not shutil.which(name)]


@contextlib.contextmanager
def opened(folder, width=1280, height=800, dark=False):
    """A browser whose files are in a folder."""
    options = Options()
    options.binary_location = shutil.which("chromium")
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                 "--no-first-run", "--disable-background-networking", "--hide-scrollbars",
                 f"--user-data-dir={folder}", f"--window-size={width},{height}"):  # fmt: skip
        options.add_argument(word)
    options.accept_insecure_certs = True
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    try:
        yield Page(driver, width, height, dark)
    finally:
        driver.quit()


class Page:
    """A browser's one page."""

    def __init__(self, driver, width, height, dark=False):
        self.driver = driver
        self.looks(width, height, dark)

    def looks(self, width, height, dark=False):
        """Be a screen of so many pixels, of somebody who likes it dark."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme, still]})

    def get(self, url):
        self.driver.get(url)

    def all(self, selector):
        """The elements of a CSS selector."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def call(self, selector):
        """The first of them, once it is there."""
        return self._kept(lambda: (self.all(selector) or [None])[0], selector)

    def _kept(self, find, what):
        """An element; where the page has drawn it anew before it is used, the new one is."""
        found = self.until(find, what)
        for name in ("click", "send_keys"):
            setattr(found, name, functools.partial(self._used, find, what, getattr(found, name)))
        return found

    def _used(self, find, what, use, *words):
        try:
            use(*words)
        except StaleElementReferenceException:
            getattr(self._kept(find, what), use.__name__)(*words)

    def until(self, found, what):
        """What a function returns once it is true."""
        wait = WebDriverWait(self.driver, PATIENCE_S, 0.05, ignored_exceptions=[Exception])
        try:
            return wait.until(lambda _driver: found())
        except TimeoutException as exc:
            # to read a page of thousands of guests takes long: only where it is needed
            raise TimeoutException(f"{what}; the page says {self.text()!r}") from exc

    def until_text(self, words, selector="body"):
        """Wait until an element has a text."""
        self.until(lambda: any(words in one.text for one in self.all(selector)), words)

    def text(self):
        """All that can be read."""
        return self.driver.find_element(By.TAG_NAME, "body").text

    def button(self, text, within=""):
        """The button with that text."""

        def found():
            return next(one for one in self.all(f"{within} button") if one.text == text)

        return self._kept(found, f"the button {text}")

    def fill(self, selector, text):
        """Write into a field."""
        field = self.call(selector)
        field.clear()
        field.send_keys(text)

    def run(self, script, *arguments):
        """What a script returns; its promise is waited for."""
        return self.driver.execute_script(script, *arguments)

    def wrong(self):
        """What the browser has to say of the page: errors, and what its policy has stopped."""
        return [one["message"] for one in self.driver.get_log("browser")]

    def cluster(self, path):
        """What is seen, as WebP."""
        shot = {"format": "webp", "quality": 80}
        found = self.driver.execute_cdp_cmd("Page.captureScreenshot", shot)
        path.write_bytes(base64.b64decode(found["data"]))

    def axe(self):
        """What axe finds: (rule, elements). It runs beside the page, which knows nothing of it."""
        source = axe().read_text(encoding="utf-8")
        self.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": True})
        world = self.driver.execute_cdp_cmd("Page.getFrameTree", {})["frameTree"]["frame"]["id"]
        made = {"frameId": world, "worldName": "axe"}
        context = self.driver.execute_cdp_cmd("Page.createIsolatedWorld", made)
        script = f"{source}\n;{AXE_RUN}"
        found = self.driver.execute_cdp_cmd("Runtime.evaluate", {
            "expression": script, "contextId": context["executionContextId"],
            "awaitPromise": True, "returnByValue": True,
        })  # fmt: skip
        # the pages of further tests have their policy
        self.driver.execute_cdp_cmd("Page.setBypassCSP", {"enabled": False})
        return found["result"]["value"]


def axe():
    """The path of axe's one file."""

    def fetch(folder):
        with wheel.opened(AXE) as found:
            (folder / "axe.min.js").write_bytes(found.read("axe_playwright_python/axe.min.js"))

    return cache.built(f"axe-{cache.key(AXE)}", fetch, home=paths.python_cache()) / "axe.min.js"
