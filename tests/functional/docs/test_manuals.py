"""Settings, events and functions of the code have a true line in the manuals."""

import ast
import functools
import re
from pathlib import Path

import pytest
import salt.utils.yaml

from saltvirt import settings
from saltvirt.operations import repair
from saltvirt.operations.access import bulk
from saltvirt.pki.authority import policy as pki
from saltvirt.placement import policy as placement
from saltvirt.spec import guest, network, pool
from tests.tools import api, docs, typed_manual
from tests.tutorial import steps as steps_of

DOCS = api.REPOSITORY / "docs"
ADAPTERS = ("_modules", "_runners", "_states", "_pillar", "_engines", "_grains")
CODE = sorted(
    path
    for folder in (*ADAPTERS, "_utils/saltvirt")
    for path in (api.REPOSITORY / folder).rglob("*.py")
)
READERS = {
    "option", "integer", "number", "boolean", "text", "folder", "choice", "mapping", "name_list",
}  # fmt: skip
# functions of a file of their own that read one key of a section: its beginning
OWN_READERS = {"_config": "", "_limit": "", "_set": "seed:"}
# read in a loop over both
PROFILES = {"disk", "nic"}


@functools.cache
def nodes(path):
    """Every node of a file's tree."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def calls(path):
    """(name of the function, call) of each call in a file; ``a.b.c()`` is ``c``."""
    for node in nodes(path):
        if isinstance(node, ast.Call):
            func = node.func
            yield getattr(func, "attr", None) or getattr(func, "id", ""), node


def literal(node):
    """A text, with ``*`` for what is filled in; None for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "*" for part in node.values)
    return None


def keys_read():
    """Every key of configuration that is read; ``pki:*`` where the last word is handed in."""
    found = set()
    for path in CODE:
        for name, call in calls(path):
            of_settings = getattr(getattr(call.func, "value", None), "id", "") == "settings"
            inside = path.name == "settings.py"
            given = [literal(one) for one in call.args]
            if name in READERS and (of_settings or inside) and len(given) > 1:
                found.add(given[1])
            elif name in OWN_READERS and given:
                found |= {OWN_READERS[name] + word for word in given if word}
    return found - {None}


def rows(page):
    """The cells of each row of a table in a manual, by its first cell's texts in backticks."""
    found = {}
    for line in (DOCS / page).read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.split(" | ")]
        if line.startswith("| `"):
            cells[0] = cells[0].removeprefix("| ")
            for word in re.findall(r"`([^`]+)`", cells[0]):
                assert word not in found, f"{page}: {word} has two rows"
                found[word] = [cell.removesuffix(" |") for cell in cells[1:]]
    return found


CONFIGURATION = rows("reference/configuration.md")


def test_every_key_that_the_code_reads_is_known_and_every_known_one_is_read():
    read = keys_read()
    exact = {key for key in read if "*" not in key} | PROFILES
    begins = tuple(key.partition("*")[0] for key in read - exact if key.partition("*")[0])
    assert exact <= set(settings.KEYS)
    assert [k for k in settings.KEYS if k not in exact and not k.startswith(begins)] == []
    assert {"hosts", "migration:policy", "seed:backend", "connection:uri"} <= exact


@pytest.mark.parametrize("key", settings.KEYS)
def test_a_key_of_configuration_has_its_default_and_its_machine(key):
    default, machine, what = CONFIGURATION[f"virt:{key}"]
    assert default
    assert re.fullmatch(r"master|master, host|host( \((source|target)\))?", machine)
    assert what


def test_no_key_is_explained_that_nobody_reads():
    known = {f"virt:{key}" for key in settings.KEYS}
    known |= {f"virt:placement:{key}" for key in (*placement.SETTINGS, "weights")}
    assert {key for key in CONFIGURATION if key.startswith("virt:")} == known


@pytest.mark.parametrize("key", sorted(placement.SETTINGS))
def test_the_defaults_of_placement_are_the_codes(key):
    assert float(CONFIGURATION[f"virt:placement:{key}"][0]) == getattr(
        placement.PlacementPolicy(), key
    )


@pytest.mark.parametrize("key", ["mode", "key", "days", "ca_days", "ca_name", "trust_grains"])
def test_the_defaults_of_certificates_are_the_codes(key):
    said = CONFIGURATION[f"virt:pki:{key}"][0].strip("`")
    assert said == str(getattr(pki.CertificatePolicy(), key))


CONSTANTS = {
    "virt:inits_at_once": ("operations/journal/slots.py", "INITS"),
    "virt:migration:at_once": ("operations/journal/slots.py", "AT_ONCE"),
    "virt:migration:at_once_per_host": ("operations/journal/slots.py", "PER_HOST"),
    "virt:queue_timeout": ("system/file_lock.py", "QUEUE_TIMEOUT_S"),
    "virt:stall_timeout": ("fleet/client.py", "STALL_S"),
    "virt:job_timeout": ("fleet/client.py", "JOB_S"),
    "virt:image_copies": ("fleet/download_queue.py", "AT_ONCE"),
    "virt:connection:timeout": ("settings.py", "TIMEOUT_S"),
    "virt:images": ("settings.py", "IMAGES_FOLDER"),
    "virt:seed:keysize": ("seed/keys.py", "DEFAULT_BITS"),
}


@pytest.mark.parametrize(("key", "place"), CONSTANTS.items())
def test_a_default_is_the_codes(key, place):
    text = (api.REPOSITORY / "_utils/saltvirt" / place[0]).read_text(encoding="utf-8")
    value = re.search(rf"^{place[1]} = ([^ \n]+)", text, re.MULTILINE)[1]
    assert CONFIGURATION[key][0].strip("`") == value.strip('"')


def test_a_setting_in_an_example_of_a_manual_is_known():
    """An example is read as a master's own configuration, where an unknown key is refused."""
    examples = [data for page in PAGES for data in sls(page) if isinstance(data.get("virt"), dict)]
    assert len(examples) > 6
    for data in examples:
        get = settings.of_master(data)
        for key in settings.KEYS:
            settings.option(get, key)
        placement.of_master({"virt": data["virt"]})


@pytest.mark.parametrize("code", repair.CODES)
def test_a_finding_of_repair_has_its_row(code):
    text = (DOCS / "how-to/purge.md").read_text(encoding="utf-8")
    assert re.search(rf"^\| `{code}` (\| [^|]+){{2}}\|$", text, re.MULTILINE)


KEPT = re.compile(
    r'paths\.STATE(?:\}/|, ")([a-z_-]+)|"pki_dir"\], "(virt[a-z-]*)"'
    r'|"cachedir"\]\) / "virt" / "([a-z.]+)"'
)


def test_what_is_kept_beside_libvirt_is_on_the_page_about_backup():
    text = (DOCS / "how-to/master.md").read_text(encoding="utf-8")
    texts = [path.read_text(encoding="utf-8") for path in CODE]
    kept = {word for one in texts for found in KEPT.findall(one) for word in found if word}
    assert {"migrations", "virtkeys", "begun", "secret-key"} <= kept
    assert {word for word in kept if not re.search(rf"[/`]{re.escape(word)}[`.]", text)} == set()


def steps():
    """Every step that the code sends as an event."""
    found = set()
    for path in CODE:
        for name, call in calls(path):
            given = [literal(one) for one in call.args]
            sends = name == "step" and getattr(call.func, "attr", "") and len(given) > 1
            if (sends or (name == "report_step" and len(given) > 1)) and given[0]:
                found.add(given[0])
            elif name in ("ProgressReporter", "_progress") and len(given) > 1 and given[1]:
                found.add(given[1])
            elif name == "fire_event" and given and given[0] and given[0].startswith("*/"):
                found.add(given[0].removeprefix("*/"))
    return {step for step in found if re.fullmatch("[a-z]+", step)}


def test_every_step_has_its_line():
    explained = set(rows("reference/events.md"))
    assert {"placed", "fetch", "copy", "done", "failed", "kernel", "recover"} <= steps()
    assert steps() - explained == set()
    assert {word for word in explained if re.fullmatch("[a-z]+", word)} - steps() == set()


def test_every_tag_has_its_line():
    text = (DOCS / "reference/events.md").read_text(encoding="utf-8")
    sent = set()
    for path in CODE:
        for node in nodes(path):
            said = literal(node)
            if said and said.startswith("salt/virt/") and not isinstance(node, ast.Expr):
                sent.add(re.sub(r"\*", "<>", said))
    tags = {re.sub(r"<[a-z]+>", "<>", tag) for tag in re.findall(r"`(salt/[^` ]+)`", text)}
    known = {*tags, "salt/virt/<>/migrate/lost", "salt/virt/<>/<>"}
    assert len(sent) > 3
    # what ends with a slash is the beginning that somebody listens to
    begins = {tag for tag in sent if tag.endswith("/")}
    assert {tag for tag in sent - begins if tag not in known and "\n" not in tag} == set()


@pytest.mark.parametrize("function", api.ours("runners.virt"), ids=lambda f: f.name)
def test_every_verb_is_in_the_table_of_the_runners_page(function):
    text = (DOCS / "how-to/runner.md").read_text(encoding="utf-8")
    verbs = set()
    for line in text.splitlines():
        if line.startswith("| `"):
            for named in re.findall(r"`([^`]+)`", line.split(" | ")[0]):
                verbs.add(re.split(r"[ \[]", named)[0])
    assert function.name in verbs


def leaves(value, begin=()):
    """The paths of a formula's settings: down to what is no dictionary, or an empty one."""
    if isinstance(value, dict) and value:
        for key, below in value.items():
            yield from leaves(below, (*begin, key))
    else:
        yield begin


# of the distribution, not of an operator
INTERNAL = {"daemons"}
DEFAULTS = salt.utils.yaml.safe_load(
    (api.REPOSITORY / "formulas/libvirt/parameters/defaults.yaml").read_text(encoding="utf-8")
)
SETTINGS = sorted(path for path in leaves(DEFAULTS) if path[0] not in INTERNAL)


@pytest.mark.parametrize("path", SETTINGS, ids=":".join)
def test_a_setting_of_the_formula_is_in_the_example_and_the_manual(path):
    example = (api.REPOSITORY / "formulas/libvirt/pillar.example").read_text(encoding="utf-8")
    found = salt.utils.yaml.safe_load(example)["libvirt"]
    for word in path:
        assert word in found, f"pillar.example lacks {':'.join(path)}"
        found = found[word]
    text = (DOCS / "how-to/hypervisors.md").read_text(encoding="utf-8")
    assert f"`{':'.join(path)}`" in text, f"docs/how-to/hypervisors.md lacks {':'.join(path)}"


# `salt-run virt.init web1 …`, `salt 'hv*' virt.images`, `salt-call virt.tls_info`
COMMAND = re.compile(
    r"(?:(salt-run)|salt(?:-call)?(?: -[a-z]+| --[a-z=]+)*(?: (?:'[^']*'|[\w*.-]+))?) "
    r"((?:virt|seed)\.\w+)((?: [^#\n]*)?)"
)
SECTIONS = {True: ("runners.virt",), False: ("modules.virt", "modules.seed")}
PAGES = sorted([*DOCS.rglob("*.md"), *api.REPOSITORY.glob("*.md")])


def spoken(page):
    """(is it the runner's, function, words after it) of each command that a page has."""
    for line in page.read_text(encoding="utf-8").splitlines():
        texts = re.findall(r"`([^`]+)`", line) if "`" in line else [line]
        for text in texts:
            for runner, function, rest in COMMAND.findall(text):
                if not function.endswith(".FUNCTION"):
                    yield bool(runner), function, rest


@functools.cache
def functions(runner):
    """{``virt.init``: names of its parameters, None where any is taken}"""
    found = {}
    for section in SECTIONS[runner]:
        module = "seed" if section.endswith("seed") else "virt"
        for function in api.ours(section):
            names = {word.partition("=")[0].strip("*") for word in function.parameters}
            free = any(word.startswith("**") for word in function.parameters)
            if runner and function.parameters[:1] == ("name",):
                names |= {*bulk.SELECTORS, *bulk.OPTIONS}
            found[f"{module}.{function.name}"] = None if free else names
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(api.REPOSITORY)))
def test_a_command_in_a_manual_calls_what_is_there_with_what_it_takes(page):
    wrong = []
    for runner, function, rest in spoken(page):
        known = functions(runner)
        if function not in known:
            wrong.append(f"{'salt-run' if runner else 'salt'} {function}: no such function")
        elif known[function] is not None:
            words = re.findall(r"(?:^| )([a-z_]+)=", rest.partition(" #")[0])
            wrong += [f"{function} {word}=" for word in words if word not in known[function]]
    assert wrong == [], page


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(api.REPOSITORY)))
def test_an_outputter_of_a_manual_is_there_in_every_salt(page):
    """Salt 3008 removed some: it shows the answer by another then, and says so on stderr."""
    named = re.findall(r"--out=(\w+)", page.read_text(encoding="utf-8"))
    assert set(named) <= {"json", "nested", "virt_query", "yaml"}


# pages that a test reads and types, block by block
FOLLOWED = {
    "CONTRIBUTING.md": "tests/functional/docs/test_contributing.py",
    "docs/how-to/backups.md": "tests/functional/docs/test_sessions_services.py",
    "docs/how-to/certificates.md": "tests/functional/docs/test_sessions_services.py",
    "docs/how-to/consoles.md": "tests/functional/docs/test_sessions_services.py",
    "docs/how-to/metrics.md": "tests/functional/docs/test_sessions_services.py",
    "docs/how-to/hypervisors.md": "tests/functional/docs/test_sessions_services.py",
    "docs/how-to/master.md": "tests/integration/test_keys.py",
    "docs/how-to/migration.md": "tests/functional/docs/test_sessions_services.py",
    "docs/how-to/web.md": "tests/integration/test_page.py",
    "docs/how-to/cheat-sheet.md": "tests/functional/docs/test_commands.py",
    "docs/how-to/from-proxmox.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/guests.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/ha.md": "tests/integration/test_ha_setup.py",
    "docs/how-to/images.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/iso.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/networks.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/placement.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/purge.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/resize.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/rights.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/runner.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/second-site.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/snapshots.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/states.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/teams.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/templates.md": "tests/functional/docs/test_sessions.py",
    "docs/how-to/troubleshooting.md": "tests/integration/test_host_died.py",
    "docs/how-to/windows.md": "tests/functional/docs/test_sessions.py",
    "docs/tutorial/first-cluster.md": "tests/integration/test_first_cluster.py",
}


def typed(page):
    """The commands of a page that a reader types: after a prompt, or in a block of the shell."""
    text = typed_manual.joined(page.read_text(encoding="utf-8"))
    for kind, block in re.findall(r"```(\w*)\n(.*?)```", text, re.DOTALL):
        for line in block.splitlines():
            prompt = re.match(r"(?:master)?# (salt.*)", line)
            begins = r"\s*(salt|make|apt-get|tar)\b"
            if prompt or (kind in ("sh", "bash") and re.match(begins, line)):
                yield prompt[1] if prompt else line.strip()
    yield from re.findall(r"^    (?:# )?(salt(?:-run)? .*)$", text, re.MULTILINE)


# of the README: what installs and builds; CI does it by `tests/lab/lab bare make test`
BY_HAND = re.compile(r"make |apt-get |salt-pip |systemctl ")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(api.REPOSITORY)))
def test_a_command_of_a_manual_is_typed_by_a_test(page):
    name = str(page.relative_to(api.REPOSITORY))
    commands = {command for step in steps_of.STEPS for command in step.commands}
    left = [one.partition("  #")[0].strip().replace("hyper*", "hv*") for one in typed(page)]
    left = [one for one in left if one not in commands]
    if name == "README.md":
        left = [one for one in left if not BY_HAND.match(one) and one not in REFUSED]
    if name in FOLLOWED:
        follows = (api.REPOSITORY / FOLLOWED[name]).read_text(encoding="utf-8")
        assert f'"{Path(name).name}"' in follows
        sessions = typed_manual.sessions(page.read_text(encoding="utf-8"))
        steps = [step for session in sessions for step in session.steps]
        known = {step.command.replace("hyper*", "hv*") for step in steps}
        left = [one for one in left if one not in known] if "sessions" in FOLLOWED[name] else []
    assert left == [], name


# the README's two commands that are refused: tests/integration/test_bad_input.py types the like
REFUSED = ("salt-run virt.init a/b 1 512 salt://debian.qcow2", "salt-run virt.start nobody")


STATES = {function.name: function for function in api.ours("states.virt")}


def sls(page):
    """The YAML blocks of a page, as data; those with Jinja are left to test_sls."""
    blocks = re.findall(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for block in blocks:
        data = salt.utils.yaml.safe_load(re.sub(r"\{[{%].*?[%}]\}", "x", block))
        if isinstance(data, dict):
            yield data


def applied(page):
    """(ID, state, parameters) of each of our states in a page's SLS."""
    for data in sls(page):
        for name, body in data.items():
            for call, items in body.items() if isinstance(body, dict) else ():
                if str(call).startswith("virt."):
                    given = [one for one in items or () if isinstance(one, dict)]
                    yield name, call, {key: v for one in given for key, v in one.items()}


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(api.REPOSITORY)))
def test_a_state_in_a_manual_is_there_with_the_parameters_that_it_has(page):
    """The states that take more hand it to a function that refuses what it does not know."""
    for _name, call, given in applied(page):
        parameters = STATES[call.removeprefix("virt.")].parameters
        known = {word.partition("=")[0].strip("*") for word in parameters}
        more = any(word.startswith("**") for word in parameters)
        unknown = set(given) - known - set(REQUISITES)
        assert not unknown or (more and unknown <= MORE), f"{call}: {unknown}"


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(api.REPOSITORY)))
def test_a_pool_and_a_network_of_a_manual_are_what_their_states_take(page):
    for name, call, given in applied(page):
        if call in ("virt.pool_running", "virt.pool_defined") and "ptype" in given:
            words = ("ptype", "source", "target", "permissions")
            pool.from_state(name=name, **{word: given.get(word) for word in words})
        elif call in ("virt.network_running", "virt.network_defined"):
            words = network.NetworkSpec.keys()
            network.parse(**{"name": name, **{k: v for k, v in given.items() if k in words}})


REQUISITES = (
    "require", "watch", "onchanges", "onfail", "unless", "onlyif", "prereq", "order", "name",
    "parallel", "retry", "failhard", "listen",
)  # fmt: skip
MORE = set(guest.arguments()) | {"image", "config", "grains", "size", "detach", "start", "update"}


@pytest.mark.parametrize("page", sorted((DOCS / "how-to").glob("*.md")), ids=lambda p: p.stem)
def test_an_operators_page_names_no_test_and_no_benchmark(page):
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"test_\w+\.py|::test_\w+|make (?:bench|swarm|chaos|ha|life)\b", text) == []


LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)")


# {path: text} of the pages that the site has in addition
REFERENCES = {api.REPOSITORY / name: text for name, text in docs.references().items()}


def anchors(text):
    """The anchors of a page's headings, as GitHub and the site make them."""
    for line in text.splitlines():
        if line.startswith("#"):
            words = line.lstrip("#").strip().lower()
            yield re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", words))


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(api.REPOSITORY)))
def test_a_link_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for path, anchor in LINK.findall(text):
        if path.startswith(("http:", "https:", "mailto:")):
            continue
        there = Path(page.parent / path).resolve() if path else page
        assert there.exists() or there in REFERENCES, path
        if anchor and there.suffix == ".md":
            linked = REFERENCES.get(there) or there.read_text(encoding="utf-8")
            assert anchor in set(anchors(linked)), f"{path}#{anchor}"
