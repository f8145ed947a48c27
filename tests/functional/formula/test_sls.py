"""The SLS files that masters run, shipped or printed in a manual, with values of a hostile
minion."""

import ast
import json
import re
import textwrap
from pathlib import Path

import jinja2
import pytest
import yaml

pytest.importorskip("salt.loader")

import salt.config
import salt.loader
import salt.template

from tests.functional.hostile import show
from tests.tools import typed_manual

HERE = Path(__file__).resolve().parents[3]
SHIPPED = sorted(HERE.glob("formulas/virt/**/*.sls"))
MANUALS = [HERE / "README.md", *sorted(HERE.glob("docs/**/*.md"))]
HOSTILE = [
    "web1\nlocal.cmd.run:\n  - tgt: '*'",
    "web1\n\nx:\n  local.cmd.run:\n    - tgt: '*'\n    - args:\n      - cmd: id\n",
    "hv1\n",
    "web1' \"}",
    'a"\nx: {local.cmd.run: [{tgt: "*"}]}',
    "{{ salt['cmd.run']('id') }}",
    "{% set x = 1 %}",
    "!!python/object/apply:os.system ['id']",
    "a: b",
    "- a",
    "# a",
    "&a *a",
    "a\r\nb\u2028c\u0085d\x00\x1b[2J",
    "hv1 or *",
    "\U0001f600 é\x7f",
    "x" * 100_000,
    "*",
    "\\",
    "",
    "none",
    "1e3",
    {"web1": {"local.cmd.run": []}},
    ["web1"],
    7,
    None,
]


def printed():
    """(name, text) of each SLS that a manual prints and that takes something from an event."""
    for path in MANUALS:
        blocks = typed_manual.BLOCK.finditer(path.read_text())
        for number, block in enumerate(blocks):
            is_sls = block["kind"] in ("", "yaml", "jinja", "sls")
            if is_sls and re.search(r"\{[{%].*\bdata\b", block["text"]):
                yield f"{path.name}-{number}", block["text"]


@pytest.fixture(scope="module")
def render(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sls")
    opts = salt.config.master_config(None)
    opts.update(cachedir=str(folder), conf_file="/etc/salt/minion", virt={"hosts": "hv*"})

    def rendered(text, data, pillar=None, more=None):
        functions = {
            **(more or {}),
            "config.get": lambda key, default=None: "hv*",
            "saltutil.runner": lambda name, arg: {"pam": {"anna": [".*"]}, "file": {}},
            "pillar.get": lambda key, default=None: (pillar or {}).get(key, default),
        }
        path = folder / "x.sls"
        path.write_text(text)
        renderers = salt.loader.render(opts, functions)
        return salt.template.compile_template(
            str(path), renderers, "jinja|yaml", None, None, data=data, tag="salt/minion/x/start"
        )

    return rendered


def reactions():
    for path in SHIPPED:
        if path.parent.name == "reactor":
            yield path.name, path.read_text()
    yield from printed()


REACTIONS = dict(reactions())


def shape(found):
    """The names of keys, and whether the values are texts, lists or dictionaries."""
    if isinstance(found, dict):
        return [(str(key), shape(value)) for key, value in found.items()]
    return [shape(one) for one in found] if isinstance(found, list) else "a value"


@pytest.mark.parametrize("hostile", HOSTILE, ids=show)
@pytest.mark.parametrize("name", REACTIONS)
def test_an_event_is_never_more_than_data(render, name, hostile):
    plain = render(REACTIONS[name], {"id": "web1"})
    found = render(REACTIONS[name], {"id": hostile})
    said = str(hostile)
    assert shape(found) == [(key.replace("web1", said), inner) for key, inner in shape(plain)]
    assert said in repr(values(found)) or said in list(values(found))


def values(found):
    if isinstance(found, dict):
        for value in found.values():
            yield from values(value)
    elif isinstance(found, list):
        for one in found:
            yield from values(one)
    else:
        yield found


def test_the_manuals_print_no_unquoted_jinja():
    """What they print beside a reaction is not rendered here."""
    inline = re.compile(r"\{\{(?!.*\|\s*(?:yaml_dquote|json|tojson)).*?\}\}")
    for path in MANUALS:
        assert not inline.findall(path.read_text()), path


ORCHESTRATION = (HERE / "formulas/virt/orch/hypervisor.sls").read_text()


@pytest.mark.parametrize("hostile", HOSTILE, ids=show)
def test_an_orchestration_is_for_an_id_or_for_nobody(render, hostile):
    assert not render(ORCHESTRATION, {}, {"hypervisor": hostile}) or re.fullmatch(
        r"[A-Za-z0-9._-]+", str(hostile)
    )


def test_it_keeps_to_virt_hosts(render):
    found = render(ORCHESTRATION, {}, {"hypervisor": "hv1"})
    [call] = found["hypervisor hv1"].values()
    assert {"tgt": "( hv* ) and L@hv1"} in call


def test_a_deployment_is_data(render):
    text = (HERE / "formulas/virt/orch/deploy.sls").read_text()
    guests = {"web1": {"metadata": {"a": HOSTILE[0]}}}
    names = ("shop", *[one for one in HOSTILE if isinstance(one, str) and len(one) < 1000])
    for name in names:
        found = render(text, {}, {"virt_deploy": {name: {"guests": guests}}})
        assert list(found) == [name]
        assert {"guests": guests} in found[name]["virt.deployed"]


BACKUPS = (HERE / "formulas/virt/backups/init.sls").read_text()


def _schedule(found):
    (written,) = [one["contents"] for one in found["virt_backups_schedule"]["file.managed"]
                  if "contents" in one]  # fmt: skip
    return yaml.safe_load(written)["schedule"]


def test_the_schedule_of_backups_is_what_its_manual_says(render):
    found = render(BACKUPS, {})
    names = [one for one in found["virt_backups_schedule"]["file.managed"] if "name" in one]
    assert names == [{"name": "/etc/salt/master.d/salt-virt-backups.conf"}]
    manual = (HERE / "docs/how-to/backups.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| `(\{.*?\})` \|", manual, re.M)
    told = {f"virt_backup_{name}": yaml.safe_load(text) for name, text in rows}
    plan = _schedule(found)
    found = {name: {"seconds": one["seconds"], **one["kwargs"]} for name, one in plan.items()}
    assert found == told
    assert {one["function"] for one in plan.values()} == {
        "virt.backup_due", "virt.backup_prune", "virt.backup_verify", "virt.backup_instant"
    }  # fmt: skip


def test_the_schedule_of_backups_says_what_is_in_pillar(render):
    due = {"seconds": 600, "guests": "web*", "hours": 12, "to": "vault"}
    plan = _schedule(render(BACKUPS, {}, {"virt_backups": {"due": due, "prune": False}}))
    assert set(plan) == {"virt_backup_due", "virt_backup_verify", "virt_backup_instant"}
    one = plan["virt_backup_due"]
    assert (one["seconds"], {"seconds": 600, **one["kwargs"]}) == (600, due)
    wrong = render(BACKUPS, {}, {"virt_backups": {"purge": {}}})
    (said,) = wrong["virt_backups_schedule"]["test.fail_without_changes"]
    assert "unknown purge" in said["name"] and "virt_backups_master" not in wrong


@pytest.mark.parametrize(
    ("pillar", "reason"),
    [
        ({"due": {"seconds": "1h"}}, 'due: seconds: a number above 0, not "1h"'),
        ({"verify": {"seconds": 0}}, "verify: seconds: a number above 0, not 0"),
        ({"due": {"seconds": None}}, "due: seconds: a number above 0, not null"),
        ({"due": {"seconds": -60}}, "not -60"),
        ({"due": {"seconds": True}}, "not true"),
        ({"due": {"guest": "web*"}}, "due: unknown guest; known: seconds, guests, hours, to,"),
        ({"prune": {"minutes": 5}}, "prune: unknown minutes; known: seconds, name, to, test"),
        ({"due": True}, "due: a mapping or false, not true"),
        ({"due": "web*"}, 'due: a mapping or false, not "web*"'),
        (["due"], 'a mapping, not ["due"]'),
    ],
)
def test_a_schedule_that_would_not_run_is_refused(render, pillar, reason):
    wrong = render(BACKUPS, {}, {"virt_backups": pillar})
    (said,) = wrong["virt_backups_schedule"]["test.fail_without_changes"]
    assert reason in said["name"] and "virt_backups_master" not in wrong


def test_the_schedule_knows_what_each_verb_may_be_given(render):
    runners = {}
    for path in sorted((HERE / "_runners").glob("virt_backup*.py")):
        for one in ast.walk(ast.parse(path.read_text())):
            if isinstance(one, ast.FunctionDef):
                runners[one.name] = [argument.arg for argument in one.args.args]
    for name in ("due", "prune", "verify", "instant"):
        wrong = render(BACKUPS, {}, {"virt_backups": {name: {"x": 1}}})
        (said,) = wrong["virt_backups_schedule"]["test.fail_without_changes"]
        known = f"known: seconds, {', '.join(runners[f'backup_{name}'])}"
        assert said["name"].endswith(known)


def test_the_schedule_that_the_manual_prints_backs_up_the_guests_that_it_names(render):
    manual = (HERE / "docs/how-to/backups.md").read_text()
    printed = yaml.safe_load(re.search(r"`(virt_backups: \{due: .*?\}\})`", manual)[1])
    due = _schedule(render(BACKUPS, {}, printed))["virt_backup_due"]
    assert due["kwargs"] == {"guests": "web*", "hours": 24, "to": "vault"}
    both = {"virt_backups": {"due": {"guests": "web*", "scheduled": True}}}
    assert _schedule(render(BACKUPS, {}, both))["virt_backup_due"]["kwargs"]["scheduled"] is True


def test_the_page_is_configured_as_its_manual_says(render):
    found = render((HERE / "formulas/virt/page/init.sls").read_text(), {})
    written = {key: value for one in found["virt_page_settings"]["file.managed"]
               for key, value in one.items()}  # fmt: skip
    assert written["name"] == "/etc/salt/master.d/salt-virt-page.conf"
    printed = re.search(r"```yaml\n(.*?)```", (HERE / "docs/how-to/web.md").read_text(), re.S)[1]
    assert written["contents"] == textwrap.dedent(printed)
    files = {key: value for one in found["virt_page_files"]["file.recurse"]
             for key, value in one.items()}  # fmt: skip
    assert files["name"] in printed
    page = HERE / "formulas" / files["source"].removeprefix("salt://")
    text = (page / "index.html").read_text()
    named = re.findall(r'(?:src|href)="/static/([^"]+)"', text)
    assert named
    for script in page.glob("*.js"):
        named += re.findall(r'from "\./([^"]+)"', script.read_text())
    assert {path.name for path in page.iterdir()} == {"index.html", *named}
    login = {key: value for one in found["virt_page_login"]["file.managed"]
             for key, value in one.items()}  # fmt: skip
    assert json.loads(login["contents"]) == {"methods": ["file", "pam"]}
    assert login["name"] == f"{files['name']}/login.json"


TLS = {"certificate": "/etc/pki/a: b.crt", "key": "/etc/pki/a.key"}


OPTS = salt.config.minion_config(None)
FUNCTIONS = salt.loader.minion_mods(OPTS, utils=salt.loader.utils(OPTS))
SEARCH = {"file.search": FUNCTIONS["file.search"]}


@pytest.fixture
def conf(tmp_path):
    """The folder of the master's configuration, as a package installs it."""
    (tmp_path / "master.d").mkdir()
    (tmp_path / "master").write_text("interface: 0.0.0.0\n#engines:\n#  - logstash\n")
    return tmp_path


def consoles(render, asked, conf):
    """The states of virt.page.console. conf: the folder of the master's configuration."""
    text = (HERE / "formulas/virt/page/console.sls").read_text()
    text = text.replace("opts.conf_file", f'"{conf}/minion"')
    states = render(text, {}, {"virt_page": asked}, SEARCH)
    assert states.pop("include") == ["virt.page"]
    return {
        name: {key: value for one in of for state in of[one] if isinstance(state, dict)
               for key, value in state.items()}
        for name, of in states.items()
    }  # fmt: skip


def test_consoles_listen_on_this_machine_alone(render, conf):
    found = consoles(render, TLS, conf)
    engine = found["virt_console_engine"]
    assert engine["name"] == f"{conf}/master.d/salt-virt-reach.conf"
    assert yaml.safe_load(engine["contents"]) == {
        "engines": [{"virt_reach": {"port": 8003}}],
        "rest_cherrypy": {"host": "127.0.0.1", "port": 8001, "disable_ssl": True},
    }
    front = found["virt_console_front"]
    source = HERE / "formulas" / front["source"].removeprefix("salt://")
    text = jinja2.Template(source.read_text()).render(front["context"])
    assert "listen 8000 ssl;" in text and "ssl_certificate /etc/pki/a: b.crt;" in text
    assert text.count("proxy_pass http://127.0.0.1:") == text.count("proxy_pass") == 2
    for ipv6 in (True, False):
        text = jinja2.Template(source.read_text()).render({**front["context"], "ipv6": ipv6})
        assert ("listen [::]:8000 ssl;" in text) is ipv6
    page = render((HERE / "formulas/virt/page/init.sls").read_text(), {})
    kept = {"exclude_pat": found["virt_console_novnc"]["name"].rpartition("/")[2]}
    assert kept in page["virt_page_files"]["file.recurse"]


@pytest.mark.parametrize("asked", [{}, {"certificate": "/a"}, {"key": "/a"}])
def test_consoles_without_a_certificate_are_none(render, conf, asked):
    assert list(consoles(render, asked, conf)) == ["virt_console_tls"]


def engines_of(conf, console):
    """The master's engines, as Salt reads its configuration, once the console's file is written."""
    path = conf / "master.d/salt-virt-reach.conf"
    path.write_text(console["virt_console_engine"]["contents"])
    opts = salt.config.master_config(str(conf / "master"))
    return [one if isinstance(one, str) else next(iter(one)) for one in opts["engines"]]


MAIN = "interface: 0.0.0.0\nengines: [virt_ha{}]\n"


@pytest.mark.parametrize("listed", ["", ", virt_reach"])
def test_engines_of_the_main_file_stay(render, conf, listed):
    """A list in master.d replaces the list of the main file."""
    (conf / "master").write_text(MAIN.format(listed))
    console = consoles(render, TLS, conf)
    assert "engines" not in yaml.safe_load(console["virt_console_engine"]["contents"])
    assert ("virt_console_engines" in console) is not listed
    assert engines_of(conf, console)[0] == "virt_ha"


def test_engines_of_other_files_stay(render, conf):
    (conf / "master.d/virt.conf").write_text("engines: [virt_ha]\n")
    for _ in range(2):  # the second time with the file that the first one wrote
        console = consoles(render, TLS, conf)
        assert "virt_console_engines" not in console
        assert sorted(engines_of(conf, console)) == ["virt_ha", "virt_reach"]


def metrics(render, conf):
    """The text of libvirt.metrics, rendered for a minion whose configuration is in a folder."""
    text = (HERE / "formulas/libvirt/metrics.sls").read_text()
    imported = next(line for line in text.splitlines() if "map.jinja" in line)
    variables = (
        '{%- set libvirt = {"metrics": {"address": "::1", "port": 1, "tls": false, "every_s": 9,'
        ' "system_package": "p", "requirement": "r"}} %}'
        '{%- set python, pip, restart_minion = "/opt/p", "pip", "restart" %}'
    )
    text = text.replace(imported, variables).replace("opts.conf_file", f'"{conf}/minion"')
    return render(text, {}, {}, SEARCH)


@pytest.mark.parametrize(("listed", "state"), [
    ("#engines: []", "file.managed"), ("engines: [a]", "test.fail_without_changes"),
    ("engines:\n  - a\n  - virt_exporter: {}", None),
])  # fmt: skip
def test_engines_of_a_minion_stay(render, conf, listed, state):
    (conf / "minion").write_text(f"master: m\n{listed}\n")
    states = metrics(render, conf)
    assert list(states.get("libvirt_metrics_engine", [None])) == [state]
