"""The manual is what the docstrings say, and every public function has one."""

import re

import pytest
import salt.utils.yaml

from tests.lab import paths
from tests.tools import api, coverage_api, docs

FUNCTIONS = [
    *api.ours("modules.virt"), *api.ours("states.virt"), *api.ours("runners.virt"),
]  # fmt: skip


def test_the_manual_is_up_to_date():
    for path, text in docs.pages().items():
        assert path.read_text(encoding="utf-8") == text, "make docs"


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
    assert docs.markdown(text) == (
        "Do it.\n\nSee `virt.other` and `x`.\n\n**Parameters**\n\n"
        "- **name**: the name, in two lines\n\n**Returns** True\n\n"
        "**Raises** `NotFound`: no such thing\n\n**CLI example**\n\n"
        "```bash\nsalt '*' virt.do\n```"
    )


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
