"""The views of the page for the deployment, the resources and the operation of the cloud, and the
login, with an API that answers from a simulated cloud."""

# the fixtures of test_page are arguments here
# ruff: noqa: F811

import threading

import pytest

pytest.importorskip("tests.browser", reason="no selenium here: the tests' Python has it")
from tests.functional import page_api
from tests.functional.page_api import HOSTILE, USER, failed
from tests.functional.web.test_page import (  # noqa: F401
    LOOKS,
    api,
    chromium,
    guest_in,
    inside,
    login,
    page,
    pytestmark,
)

VIEWS = ("deploy", "deployments", "images", "networks", "storage", "jobs", "health", "ha",
         "maintenance", "rebalance")  # fmt: skip


def view(page, name):
    page.run("location.hash = arguments[0]", name)
    page.call(f"#views a[href='#{name}'][aria-current]")


def calls_of(api, verb):
    return [given for fun, given in api.calls if fun == verb]


def test_the_login_offers_the_configured_backends_and_remembers_the_last(page, api):
    options = page.until(lambda: page.all("#eauth option"), "a choice")
    assert [one.text for one in options] == ["file", "pam"]
    options[1].click()
    login(page)
    page.call(".tile.guest")
    page.button("Log out").click()
    page.until(lambda: page.run("return document.querySelector('#eauth').value") == "pam", "pam")
    api.methods = ["ldap"]
    page.get(f"{api.url}/page")
    page.until(lambda: not page.all("#eauth"), "nothing to choose")
    api.methods = []  # a page whose formula is older
    page.get(f"{api.url}/page")
    page.until(lambda: page.all("input#eauth"), "a text")


def test_deploy_explains_the_placement_and_follows_the_phases(inside, api):
    inside.until_text("live", ".live.on")
    inside.button("Deploy…").click()
    known = inside.until(lambda: inside.all("#known-images option"), "images")
    assert "salt://debian.qcow2" in [one.get_attribute("value") for one in known]
    inside.fill("#name", "new1")
    inside.fill("#image", "salt://debian.qcow2")
    inside.until_text("2 GiB, qcow2, cached on hyper1", "#image-help")
    inside.button("Medium").click()
    inside.button("Where would it go?").click()
    inside.until_text("new1 would go to hyper3", "aside")
    hosts = [one.text for one in inside.all(".placement li")]
    assert hosts[0].startswith("hyper3") and "goes here" in hosts[0]
    assert "most free memory" in hosts[0] and "the image is cached" in hosts[0]
    assert "less free memory" in hosts[1] and "the image must be copied first" in hosts[1]
    assert "2048 MiB are wanted, 512 MiB are free" in hosts[2]
    inside.fill("#labels", "web, prod")
    api.answers["label"] = page_api.done("new1", "labels of new1: web, prod")
    inside.button("Deploy", "form").click()
    inside.until(lambda: "new1" in api.hosts["hyper3"], "created")
    asked = {"name": "new1", "cpu": 2, "mem": "4G", "image": "salt://debian.qcow2",
             "size": "20G", "enable_vnc": True}  # fmt: skip
    assert calls_of(api, "init") == [{**asked, "test": True}, asked]
    labels = ("label", {"name": "new1", "labels": ["web", "prod"]})
    inside.until(lambda: labels in api.calls, "labels")


def test_of_several_new_guests_those_that_exist_get_owner_and_labels(inside, api):
    marks = []

    def created(arguments):
        names = arguments["name"].split(",")
        if arguments.get("test"):
            return {name: {"result": None, "comment": "would be created"} for name in names}
        return {**page_api.failed(names[0], "no space left"), **page_api.done(names[1], "runs")}

    def marked(arguments):
        marks.append(arguments)
        return page_api.done(arguments["name"], "recorded")

    api.answers.update(init=created, set_owner=marked, label=marked)
    view(inside, "deploy")
    for field, text in (("name", "new"), ("count", "2"), ("image", "salt://debian.qcow2"),
                        ("owner", "anna"), ("labels", "web")):  # fmt: skip
        inside.fill(f"#{field}", text)
    inside.button("Deploy", "form").click()
    inside.until(lambda: len(marks) == 2, "owner and labels")
    assert marks == [{"name": "new2", "owner": "anna"}, {"name": "new2", "labels": ["web"]}]


def test_an_iso_needs_no_image_and_several_get_the_next_free_names(inside, api):
    taken = guest_in(api, "running")
    api.answers["init"] = failed("x", "hyper1: source_file /iso does not exist; not enough memory")
    view(inside, "deploy")
    inside.fill("#name", taken.rstrip("0123456789"))
    inside.fill("#count", "2")
    inside.run("document.querySelector('#image').value = ''")
    inside.fill("#iso", "/iso")
    inside.button("Deploy", "form").click()
    inside.until_text("/iso does not exist", "#iso-wrong")
    inside.until_text("not enough memory", "#mem-wrong")
    assert inside.run("return document.activeElement.id") == "iso"
    (asked,) = calls_of(api, "init")
    first, second = asked["name"].split(",")
    assert taken not in (first, second) and first != second
    assert asked["image"] is None and asked["seed"] is False
    assert asked["disks"] == [{"name": "iso", "device": "cdrom", "source_file": "/iso"}]
    assert asked["boot_dev"] == ["hd", "cdrom"]


def test_what_is_missing_is_said_beside_its_field(inside, api):
    view(inside, "deploy")
    inside.run("document.querySelector('#image').value = ''")
    inside.fill("#mem", "much")
    inside.button("Deploy", "form").click()
    inside.until_text("give the guest a name", "#name-wrong")
    inside.until_text("MiB, or a size with a unit", "#mem-wrong")
    inside.until_text("choose an image", "#image-wrong")
    assert calls_of(api, "init") == []
    there = guest_in(api, "running")
    inside.fill("#name", there)
    inside.fill("#mem", "2G")
    inside.fill("#image", "salt://debian.qcow2")
    inside.button("Deploy", "form").click()
    inside.until_text(f"name '{there}' is there already, on hyper1", "#name-wrong")
    assert [given["test"] for given in calls_of(api, "init")] == [True]


def test_progress_is_that_of_the_whole_operation(inside, api):
    inside.until_text("live", ".live.on")
    for step, percent in (("placed", None), ("copy", 100), ("seed", None)):
        api.tell(f"salt/virt/web99/init/{step}", {"message": f"{step}ing", "percent": percent})
    inside.until_text("seeding", ".strip")
    inside.until_text("70 %", ".strip .badge")
    assert [one.text for one in inside.all(".strip .phases .current")] == ["seed"]
    api.tell("salt/virt/web99/init/copy", {"message": "again", "percent": 0})
    inside.until_text("again", ".strip")
    inside.until_text("70 %", ".strip .badge")
    api.tell("salt/virt/web99/init/done", {"message": "web99: running"})
    inside.until(lambda: not inside.call(".strip").is_displayed(), "it is over")


def test_a_guest_in_the_making_is_not_off(inside, api):
    name = guest_in(api, "running")
    api.hosts["hyper1"][name] |= {"state": "shutdown", "creating": True}
    api.tell("salt/run/1/ret", {"fun": "runner.virt.start", "return": {}})
    view(inside, "guests")

    def row():
        return next(one.text for one in inside.all("tbody tr") if name in one.text.split())

    inside.until(lambda: "creating" in row(), "creating")


def test_jobs_of_all_users_survive_a_reload(inside, api):
    view(inside, "jobs")
    inside.until_text("web1 was moved to hyper2", "main table")
    row = next(one.text for one in inside.all("tbody tr") if "migrate" in one.text)
    assert "root" in row and "42 s" in row and "done" in row
    inside.driver.refresh()
    inside.until_text("web1 was moved to hyper2", "main table")
    assert inside.all("img") == []
    api.answers["log"] = failed("virt", f"{USER} may not call virt.log")
    inside.button("Refresh", "main").click()
    inside.until_text("may not call virt.log", "main")


def marks(page):
    return page.until(
        lambda: (found := [one.text for one in page.all(".panel .badge")])
        and "…" not in found and found, "all have answered",
    )  # fmt: skip


def test_health_at_a_glance(inside, api):
    view(inside, "health")
    inside.until_text("it was to be renewed 3 days ago")
    assert marks(inside) == ["OK", "problems", "OK", "OK", "OK"]
    wide = """return [...document.querySelectorAll('.panel .scroll')]
        .filter((one) => one.scrollWidth > one.clientWidth).length"""
    assert inside.run(wide) == 0


def test_health_is_never_well_above_a_problem(inside, api):
    off = {"ha": {"result": True, "configured": False, "comment": "not configured (virt:ha)"}}
    silent = {"result": None, "comment": "no leftovers on the hosts that answered", "findings": [],
              "table": [["what", "is wrong"], ["hyper2", "down"]]}  # fmt: skip
    api.answers |= {
        "ha_status": off, "certs": {"certificates": {"hosts": {}}, "problems": {}},
        "backups": failed("virt", "no backup target is configured", configured=False),
        "migrate_unfinished": {"unfinished": {"result": True, "comment": "", "hosts": {}},
                               "retcode": 1},
        "repair": {"repair": silent, "retcode": 1},
    }  # fmt: skip
    view(inside, "health")
    unused = ["not configured"] * 3
    assert marks(inside) == [*unused, "problems", "problems"]
    api.answers["ha_status"] = {"ha": {"result": False, "configured": True, "comment": "x",
                                       "problems": ["no master leads"]}, "retcode": 1}  # fmt: skip
    api.answers["repair"] = {"repair": {"result": None, "comment": "", "findings": [{
        "name": HOSTILE, "what": "partially created", "how": "removed"}]}}  # fmt: skip
    inside.driver.refresh()
    assert marks(inside)[0] == "problems" and marks(inside)[4] == "problems"
    inside.until_text("no master leads", ".panel")
    inside.until_text(HOSTILE, ".panel")


def test_networks_pools_and_images_show_their_use(inside, api):
    guest = next(iter(api.hosts["hyper1"]))
    view(inside, "networks")
    inside.until_text("hyper9: hyper9 does not respond", "main .bad")
    row = next(one.text for one in inside.all("tbody tr") if one.text.startswith("hyper1 default"))
    assert "nat" in row and "192.168.122.1/24" in row and guest in row
    inside.fill("#find", "hyper2 br0")
    inside.until(lambda: len(inside.all("tbody tr")) == 1, "one bridge")
    inside.fill("#find", " ")
    view(inside, "storage")
    inside.until_text("900 GiB of 1 TiB, 124 GiB free", "main")
    inside.until_text("hyper1, pool iscsi: gone", "main .bad")
    inside.fill("#find", "hyper1 _system")
    inside.until_text(f"{guest}_system qcow2 8 GiB 1 GiB {guest}", "main tbody tr")
    inside.fill("#find", "hyper2 no guest")
    inside.until_text(f"{HOSTILE} qcow2 8 GiB 1 GiB no guest", "main tbody tr")
    inside.fill("#find", " ")
    view(inside, "images")
    inside.until_text(f"salt://{HOSTILE}", "main")
    assert inside.all("img") == []
    row = next(one.text for one in inside.all("tbody tr") if "debian" in one.text)
    assert "yes hyper1" in row and guest in row
    next(one for one in inside.all("tbody a") if "debian" in one.text).click()
    inside.until(
        lambda: inside.run("return document.querySelector('#image')?.value")
        == "salt://debian.qcow2", "the image is chosen",
    )  # fmt: skip


def test_deployments_show_which_guests_are_missing(inside, api):
    guest = next(iter(api.hosts["hyper1"]))
    view(inside, "deployments")
    inside.until_text("hyper9: down", "main .bad")
    rows = [one.text for one in inside.all("tbody tr")]
    assert rows[0] == f"{HOSTILE} 1 present"
    assert "1 present 1 missing" in rows[1] and rows[1].endswith("ops failed")
    inside.driver.find_element("link text", "shop").click()
    inside.until_text("are kept", "main")
    assert inside.run("return document.activeElement.textContent") == "All deployments"
    assert inside.run("return location.hash") == "#deployments/shop"
    rows = {one.text.split()[0]: one.text for one in inside.all("tbody tr")}
    assert rows["web9"].endswith(HOSTILE) and "missing" in rows["web9"]
    assert "present hyper1" in rows[guest]
    assert [one.text for one in inside.all("tbody a")] == [guest]
    inside.driver.back()
    inside.until(lambda: len(inside.all("tbody tr")) == 2, "all deployments")


def test_a_volume_that_no_guest_uses_is_deleted_after_a_question(inside, api):
    view(inside, "storage")
    inside.fill("#find", "hyper2 images")
    inside.until(lambda: len(inside.all("main .sheet:last-child tbody tr")) == 2, "two volumes")
    (delete,) = inside.all("main .sheet:last-child tbody button")
    api.answers["volume_delete"] = failed("x", f"volume images/{HOSTILE} stays on hyper2: why")
    delete.click()
    inside.until_text("stays on hyper2: why", "main .line.bad")
    assert inside.all("dialog") == []
    del api.answers["volume_delete"]
    delete.click()
    inside.until_text("would be deleted on hyper2. Its data is lost.", "dialog")
    inside.button("Cancel", "dialog").click()
    delete.click()
    inside.button("Delete", "dialog").click()
    inside.until_text(f"volume images/{HOSTILE} was deleted on hyper2", "main .line.good")
    inside.until(lambda: not inside.all("main tbody button"), "it is gone")
    request = {"pool": "images", "volume": HOSTILE, "host": "hyper2"}
    assert calls_of(api, "volume_delete") == [{**request, "test": True}] * 3 + [request]
    assert inside.run("return document.activeElement.textContent") == "Refresh"


def test_a_question_about_a_volume_is_not_asked_in_another_view(inside, api):
    view(inside, "storage")
    inside.fill("#find", "hyper2 images")
    inside.until(lambda: len(inside.all("main .sheet:last-child tbody tr")) == 2, "two volumes")
    checked = threading.Event()
    api.answers["volume_delete"] = lambda arguments: (
        checked.wait(10) and api.do_volume_delete(arguments)
    )
    inside.run("window.volumes = document.querySelector('main .sheet:last-child')")
    inside.all("main .sheet:last-child tbody button")[0].click()
    view(inside, "images")
    checked.set()
    inside.until(
        lambda: "would be deleted" in inside.run("return window.volumes.textContent"), "checked"
    )
    assert inside.all("dialog") == []


EMPTY = {
    "deployments": ({"deployments": {"deployments": {}, "unreachable": {}}}, "No deployments"),
    "networks": ({"networks": {"hosts": {"h": {"networks": {}, "bridges": {}}}}}, "No networks"),
    "storage": ({"pools": {"hosts": {"h": {"pools": {}}}}}, "No storage pools"),
    "images": ({"images": {"hosts": {"h": {"images": {}}}, "master": []}}, "No images"),
    "ha": ({"ha": {"result": True, "configured": False, "comment": ""}}, "is not configured"),
}
VERBS = {"storage": "pools", "ha": "ha_status"}


def test_an_empty_view_says_what_to_do(inside, api):
    for name, (answer, words) in EMPTY.items():
        api.answers[VERBS.get(name, name)] = answer
        view(inside, name)
        inside.until_text(words, ".empty")
        assert inside.all(".empty code")
    api.answers["networks"] = {"networks": {"hosts": {"h": {"error": "down"}}}}
    view(inside, "networks")
    inside.button("Refresh", "main").click()
    inside.until_text("h: down", "main")
    assert inside.all(".empty") == []


def test_what_if_this_host_fails(inside, api):
    view(inside, "ha")
    first, second = list(api.hosts["hyper2"])[:2]
    inside.call("#lose").send_keys("hyper2")
    inside.button("What would happen?").click()
    inside.until_text(f"hyper3 starts 1 guest: {first}", ".simulation")
    inside.until_text("1 guest would stay down:", ".simulation")
    assert second in inside.call(".simulation table").text
    assert calls_of(api, "ha_simulate") == [{"lose": "hyper2"}]
    inside.until_text("on different hosts, strictly", "main")


def test_maintenance_begins_and_ends_after_a_look(inside, api):
    view(inside, "maintenance")
    inside.call("button[data-name='on hyper2']").click()
    inside.until_text("hyper2 would get no new guests", "dialog .line")
    inside.fill("#why", "new disks")
    inside.button("Start maintenance", "dialog").click()
    inside.until_text("in maintenance new disks", "main")
    assert calls_of(api, "maintenance")[-1] == {
        "host": "hyper2", "state": "on", "reason": "new disks",
    }  # fmt: skip
    inside.call("button[data-name='off hyper2']").click()
    inside.button("End maintenance", "dialog").click()
    inside.until(lambda: not api.maintenance["hyper2"], "it has ended")


def test_a_plan_that_leaves_a_guest_is_not_green(inside, api):
    api.answers["evacuate"] = {"hyper1": {
        "result": None, "comment": "hyper1: 1 would move, 1 would stay", "left": {"db1": "pinned"},
        "table": [["guest", "goes to", "reason"], ["web1", "hyper3", ""], ["db1", None, "pinned"]],
    }, "retcode": 1}  # fmt: skip
    view(inside, "maintenance")
    inside.button("Evacuate…", "main").click()
    inside.until_text("1 would stay", "dialog .line.warn")
    assert inside.all("dialog .line.good") == []
    inside.until_text("pinned", "dialog table")
    inside.button("Evacuate hyper1", "dialog").click()
    inside.until(lambda: {"host": "hyper1"} in calls_of(api, "evacuate"), "it is told")


def test_rebalance_shows_its_plan_and_carries_it_out(inside, api):
    name = next(iter(api.hosts["hyper1"]))
    view(inside, "rebalance")
    inside.until_text("0.213", ".figure")
    inside.until_text("0.040", ".figure")
    inside.until_text("it has a local disk", "main")
    inside.button("Migrate 1 guest…", "main").click()
    inside.button("Migrate 1 guest", "dialog").click()
    inside.until(lambda: name in api.hosts["hyper3"], "moved")
    assert {"apply": True} in calls_of(api, "rebalance")


@pytest.mark.parametrize("look", LOOKS)
def test_axe_finds_nothing_in_the_views(page, api, look):
    page.looks(*LOOKS[look])
    login(page)
    api.tell("salt/virt/web99/init/seed", {"message": "seeding disk system"})
    for name in VIEWS:
        view(page, name)
        page.until(lambda: "Querying …" not in page.text(), "answers")
        page.until(lambda: "…" not in [one.text for one in page.all(".panel .badge")], "answers")
        assert (name, page.axe()) == (name, [])
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), name
    view(page, "deploy")
    page.fill("#name", "new1")
    page.button("Deploy", "form").click()
    page.until_text("choose an image", "#image-wrong")
    page.fill("#image", "salt://debian.qcow2")
    page.button("Where would it go?").click()
    page.until_text("would go to", "aside")
    assert page.axe() == []
