"""Project files: workflows, hooks, templates, the version, and the changelog."""

import json
import re
import shutil
import subprocess
import sys

import pytest
import salt.utils.yaml
import tomllib

import saltvirt
from tests.lab import packages, rootless, suite
from tests.lab.recipe import SALTS
from tests.tools import api, release

TREE = api.REPOSITORY


def read(name):
    return (TREE / name).read_text(encoding="utf-8")


def lints():
    """The commands of `make lint`, as ruff and mypy are given them."""
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", read("Makefile"), re.MULTILINE)[1]
    assert recipe == "\t$(LAB) lint\n"
    return [" ".join(words) for words in suite.LINT]


def test_the_workflow_and_the_hook_do_what_make_lint_does():
    steps = salt.utils.yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]["lint"]["steps"]
    run = [step["run"].removeprefix("python -m ") for step in steps if "run" in step]
    assert [line for line in run if line.startswith(("ruff", "mypy", "tests"))] == lints()
    hooks = salt.utils.yaml.safe_load(read(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    assert [hook["entry"].split()[-1] for hook in hooks] == ["lint", ".githooks/commit-msg"]


def test_unit_tests_run_on_every_python_from_the_oldest_that_is_promised():
    jobs = salt.utils.yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]
    pythons = jobs["unit"]["strategy"]["matrix"]["python"]
    assert pythons == [f"3.{minor}" for minor in range(10, 10 + len(pythons))]
    project = tomllib.loads(read("pyproject.toml"))
    assert project["project"]["requires-python"] == f">={pythons[0]}"
    assert project["tool"]["ruff"]["target-version"] == "py" + pythons[0].replace(".", "")
    assert project["tool"]["mypy"]["python_version"] == pythons[0]


def test_the_rootless_tests_run_on_every_salt_that_is_promised():
    job = salt.utils.yaml.safe_load(read(".github/workflows/tests.yml"))["jobs"]["rootless"]
    assert job["strategy"]["matrix"]["salt"] == sorted(SALTS)
    installed = set(job["steps"][0]["run"].split())
    assert {*packages.PYTHON, *rootless.PACKAGES} <= installed


def test_workflows_are_what_github_takes():
    argv = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    files = sorted((TREE / ".github/workflows").glob("*.yml"))
    done = subprocess.run([*argv, *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("workflow", ["tests", "lab"])
def test_an_expression_of_a_workflow_names_what_is_there(workflow):
    """The schema does not know it; and a shell reads each command."""
    jobs = salt.utils.yaml.safe_load(read(f".github/workflows/{workflow}.yml"))["jobs"]
    for name, job in jobs.items():
        needs = job.get("needs") or []
        known = {
            "matrix": set(job.get("strategy", {}).get("matrix", {})),
            "steps": {step["id"] for step in job["steps"] if "id" in step},
            "needs": {needs} if isinstance(needs, str) else set(needs),
        }
        assert known["needs"] <= set(jobs), name
        used = re.findall(r"\$\{\{[^}]*?\b(matrix|steps|needs)\.([\w-]+)", json.dumps(job))
        assert [one for one in used if one[1] not in known[one[0]]] == [], name
        for step in job["steps"]:
            text = re.sub(r"\$\{\{.*?\}\}", "x", step.get("run", ""))
            subprocess.run(["bash", "-n"], input=text, text=True, check=True)


@pytest.mark.parametrize("workflow", ["tests", "lab"])
def test_a_workflow_calls_only_what_is_there(workflow):
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    jobs = salt.utils.yaml.safe_load(read(f".github/workflows/{workflow}.yml"))["jobs"]
    for name, job in jobs.items():
        assert job["timeout-minutes"], name
        for step in job["steps"]:
            called = re.findall(r"(?:^|&& )make ([a-z-]+)", step.get("run", ""))
            assert set(called) <= targets, name
            for path in re.findall(r"\btests/[\w/.-]+", step.get("run", "")):
                assert (TREE / path).exists(), path


def test_the_owners_are_of_paths_that_are_there():
    lines = [line.split() for line in read(".github/CODEOWNERS").splitlines()]
    rows = [words for words in lines if words and words[0] != "#"]
    assert len(rows) > 10
    missing = [path for path, *_ in rows if path != "*" and not (TREE / path[1:]).exists()]
    assert missing == []
    assert all(owner.startswith("@") for _, *owners in rows for owner in owners)


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_a_form_asks_for_something(form):
    found = salt.utils.yaml.safe_load(read(f".github/ISSUE_TEMPLATE/{form}.yml"))
    assert found["name"]
    assert found["description"]
    ids = [part["id"] for part in found["body"]]
    assert len(ids) == len(set(ids)) >= 2
    assert any(part.get("validations", {}).get("required") for part in found["body"])


def test_the_version_stands_in_one_place():
    version = release.version()
    assert re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", version)
    assert f'"{version}"' not in read("pyproject.toml")
    project = tomllib.loads(read("pyproject.toml"))
    assert "version" in project["project"]["dynamic"]
    assert "version = attr: salt_virt.library.saltvirt.__version__" in read("setup.cfg")
    assert saltvirt.__version__ == version


TOWNCRIER = tomllib.loads(read("pyproject.toml"))["tool"]["towncrier"]
KINDS = [kind["directory"] for kind in TOWNCRIER["type"]]


def test_each_fragment_is_of_a_kind_that_the_changelog_has():
    names = [path.name for path in (TREE / "docs/changelog.d").iterdir()]
    fragments = [name for name in names if name != ".gitignore"]
    named = re.compile(rf"(\d+|\+[\w-]+)\.({'|'.join(KINDS)})(\.\d+)?\.md")
    assert [name for name in fragments if not named.fullmatch(name)] == []
    table = read("CONTRIBUTING.md")
    assert [kind for kind in KINDS if f"| `{kind}` |" not in table] == []


@pytest.fixture
def tree(tmp_path):
    """What a release changes, in a folder of its own, with fragments of its own."""
    for name in ("pyproject.toml", "CHANGELOG.md", release.VERSION):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(TREE / name, tmp_path / name)
    (tmp_path / "docs/changelog.d").mkdir(parents=True)
    (tmp_path / "docs/changelog.d/14.added.md").write_text("`virt.addresses` on the master.\n")
    (tmp_path / "docs/changelog.d/+boot.fixed.md").write_text("A guest boots twice no more.\n")
    return tmp_path


def test_a_release_takes_the_fragments_and_sets_the_version(tree):
    assert release.release("1.2.0", tree) is None
    assert release.version(tree) == "1.2.0"
    assert list((tree / "docs/changelog.d").iterdir()) == []
    text = (tree / "CHANGELOG.md").read_text()
    head = re.search(r"## 1\.2\.0 \(.*?\)(.*?)## 0\.9\.0 \(", text, re.DOTALL)[1]
    assert re.findall("### (.*)", head) == ["Added", "Fixed"]
    assert "- `virt.addresses` on the master. (#14)" in head
    assert "- A guest boots twice no more." in head
    assert release.release("1.2.0", tree) == "CHANGELOG.md has 1.2.0 already"


@pytest.mark.parametrize("wrong", ["", "1", "v1.2.0", "1.2.0; true"])
def test_a_release_of_no_version_changes_nothing(tree, wrong):
    before = (tree / "CHANGELOG.md").read_text()
    assert "is no version" in release.release(wrong, tree)
    assert (tree / "CHANGELOG.md").read_text() == before
    assert len(list((tree / "docs/changelog.d").iterdir())) == 2
