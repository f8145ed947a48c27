"""The references are generated from the docstrings, and every public function has a complete
one."""

import re

import pytest
import salt.utils.yaml

from tests.lab import paths
from tests.tools import api, coverage_api, diagrams, docs

FUNCTIONS = [
    *api.ours("modules.virt"), *api.ours("states.virt"), *api.ours("runners.virt"),
]  # fmt: skip


def test_what_is_generated_and_committed_is_up_to_date():
    for path, text in docs.pages().items():
        assert path.read_text(encoding="utf-8") == text, "make docs"


def test_the_references_have_every_function_that_an_operator_calls():
    pages = docs.references()
    for name, sections in (
        ("execution-module", ["modules.virt", "modules.seed"]),
        ("states", ["states.virt"]),
        ("runner", ["runners.virt"]),
    ):
        text = pages[f"docs/reference/{name}.md"]
        heads = re.findall(r"^### \w+\.(\w+)$", text, re.MULTILINE)
        known = [one.name for section in sections for one in api.ours(section)]
        left_out = docs.INTERNAL if name == "execution-module" else set()
        assert sorted(heads) == sorted(one for one in known if one not in left_out)


def test_no_generated_reference_is_committed():
    assert [name for name in docs.references() if (api.REPOSITORY / name).exists()] == []


def test_each_section_of_a_reference_has_a_short_title():
    for text in docs.references().values():
        titles = re.findall(r"^## (.*)$", text, re.MULTILINE)
        assert [one for one in titles if len(one) > 100 or one.endswith((".", ":"))] == []


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f"{f.path}:{f.name}")
def test_every_function_is_documented(function):
    text = function.docstring
    assert "CLI Example:" in text
    assert f"virt.{function.name}" in text.partition("CLI Example:")[2]
    elsewhere = "The parameters are those of :func:" in text
    for parameter in function.parameters:
        name = parameter.partition("=")[0]
        if not name.startswith("**") and not elsewhere:
            assert f":param {name.strip('*')}:" in text, f"{name} is not explained"
    if not function.path.startswith("_states/") and not text.startswith("Removed: "):
        assert elsewhere or ":return" in text, "what it returns is not explained"


@pytest.mark.parametrize(
    "section", ["modules.virt", "modules.seed", "states.virt", "engines.libvirt_events"]
)
def test_what_salt_3007_had_is_here_with_its_parameters(section):
    assert list(coverage_api.problems(section)) == []


def test_markdown():
    text = """Do it.

    See :func:`other` and ``x``.

    :param name: the name,
        in two lines
    :param connection: left out
    :return: True
    :raises NotFound: no such thing

    CLI Example:

    .. code-block:: bash

        salt '*' virt.do
    """
    assert docs.markdown(text, {"name": "None"}) == (
        "Do it.\n\nSee `virt.other` and `x`.\n\n"
        "| parameter | default | meaning |\n|---|---|---|\n"
        "| `name` | `None` | the name, in two lines |\n\n**Returns** True\n\n"
        "**Raises** `NotFound`: no such thing\n\n**CLI example**\n\n"
        "```bash\nsalt '*' virt.do\n```"
    )


def test_a_return_value_keeps_its_code_and_what_follows():
    text = """Do it.

    :return: a dictionary::

            {"a": 1}

        It may be empty.
    :raises NotFound: no such thing
    """
    assert docs.markdown(text) == (
        'Do it.\n\n**Returns** a dictionary:\n\n```\n{"a": 1}\n```\n\nIt may be empty.\n\n'
        "**Raises** `NotFound`: no such thing"
    )


def test_the_code_of_every_reference_is_closed():
    for text in docs.references().values():
        assert text.count("```") % 2 == 0
        assert "```\n```" not in text


def yaml_blocks():
    """(the manual, the text) of each YAML block in the README and below docs."""
    for path in (paths.REPOSITORY / "README.md", *(paths.REPOSITORY / "docs").rglob("*.md")):
        parts = path.read_text(encoding="utf-8").split("```yaml\n")[1:]
        yield from ((path.name, part.partition("```")[0]) for part in parts)


def test_every_gitfs_remote_in_the_manuals_can_stand_beside_the_others():
    """gitfs keeps a folder for each name: two remotes of one name end the master at its start."""
    remotes = []
    for name, text in yaml_blocks():
        if "gitfs_remotes:" in text:
            given = salt.utils.yaml.safe_load(text)["gitfs_remotes"]
            remotes += [(name, url, settings) for one in given for url, settings in one.items()]
    assert [manual for manual, _, _ in remotes] == ["README.md", "README.md"]
    merged = [{k: v for one in settings for k, v in one.items()} for _, _, settings in remotes]
    assert all(settings["base"] == "published" for settings in merged)
    keys = [
        settings.get("name", url) for (_, url, _), settings in zip(remotes, merged, strict=True)
    ]
    assert len(set(keys)) == len(keys)


def test_gitfs_is_told_of_in_one_place():
    for path in (paths.REPOSITORY / "docs").rglob("*.md"):
        assert "gitfs_remotes: [" not in path.read_text(encoding="utf-8"), path


NAMED_TEST = re.compile(r"`(tests/[a-z0-9_/]+\.py)::(test_[a-z0-9_]+)`")
THREAT = re.compile(r"^- \*\*(.+?)\*\*", re.MULTILINE)


def security_tests():
    """{threat: what tests/security.md names for it}"""
    text = (paths.REPOSITORY / "tests/security.md").read_text(encoding="utf-8")
    _, *parts = THREAT.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_tests_of_security_exist():
    named = NAMED_TEST.findall("".join(security_tests().values()))
    assert len(named) > 100
    missing = [
        f"{path}::{name}"
        for path, name in named
        if not (paths.REPOSITORY / path).exists()
        or f"def {name}(" not in (paths.REPOSITORY / path).read_text(encoding="utf-8")
    ]
    assert missing == []


def test_every_threat_on_the_page_of_security_has_a_test():
    text = (paths.REPOSITORY / "docs/explanation/security.md").read_text(encoding="utf-8")
    threats = THREAT.findall(text.partition("\n## A compromised guest")[2].partition(
        "\n## What is not protected")[0])  # fmt: skip
    assert len(threats) > 50
    tested = security_tests()
    assert [one for one in threats if not NAMED_TEST.search(tested.get(one, ""))] == []


def test_every_port_of_the_table_is_in_the_diagram():
    table = (docs.DOCS / "reference/ports.md").read_text(encoding="utf-8").partition("Change")[0]
    ports = {port for row in re.findall(r"^\| ([\d, to]+) \|", table, re.MULTILINE)
             for port in re.findall(r"\d{2,5}", row)}  # fmt: skip
    diagram = (docs.DOCS / "diagrams/network.txt").read_text(encoding="utf-8")
    assert len(ports) > 10
    assert [port for port in sorted(ports) if port not in diagram] == []


@pytest.mark.parametrize(
    "source", ["title: x\nlanes: a | b\na -> c: y", "title: x\nlanes: a | b\nnothing"]
)
def test_a_wrong_source_of_a_diagram_is_refused(source):
    with pytest.raises(ValueError, match="no "):
        diagrams.picture(source)
