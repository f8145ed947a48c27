"""The manual is what the docstrings say, and every public function has one."""

import pytest

from tests.tools import api, coverage_api, docs

FUNCTIONS = [*api.ours("modules.virt"), *api.ours("states.virt")]


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
