"""What a master lists: the served folders and nothing else."""

import ast
import io
import shutil
import subprocess
import zipfile

import pytest

from tests.lab import measured, paths
from tests.lab.publish import MERGED, publish
from tests.lab.sh import LabError

PACKED = paths.REPOSITORY / "_utils/saltvirt/bundle.py"


def git(repository, *arguments):
    argv = ["git", "-C", str(repository), *arguments]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()


@pytest.fixture(autouse=True)
def not_measured(monkeypatch):
    """As it is published for use."""
    monkeypatch.delenv(measured.WANTED, raising=False)


@pytest.fixture
def tree(tmp_path):
    tree = tmp_path / "tree"
    files = (
        "_modules/virt.py", "_utils/saltvirt/units.py", "_utils/saltvirt/__pycache__/units.pyc",
        "formulas/libvirt/init.sls", "tests/unit/test_units.py", "docs/index.md", "Makefile",
        "LICENSE", ".ci/run",
    )  # fmt: skip
    for name in files:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(name)
    shutil.copy(PACKED, tree / "_utils/saltvirt")
    (tree / ".gitignore").write_text("__pycache__/\n")
    return tree


def test_tests_and_docs_are_not_published(tree, tmp_path):
    remote = tmp_path / "remote.git"
    publish(tree, remote)
    assert git(remote, "ls-tree", "-r", "--name-only", "published") == [
        "LICENSE", "_modules/virt.py", "_utils/saltvirt/__init__.py",
        "_utils/saltvirt/library.zip", "formulas/libvirt/init.sls",
    ]  # fmt: skip


def functions(text):
    return {node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)}


def test_the_adapters_of_this_tree_are_one_file_a_kind(tmp_path):
    """A name at the top of one of them that means something else in another keeps them apart."""
    remote = tmp_path / "remote.git"
    publish(paths.REPOSITORY, remote)
    for into, pattern in MERGED.items():
        listed = git(remote, "ls-tree", "--name-only", "published", f"{into.split('/')[0]}/")
        assert [name for name in listed if "virt_" in name] == []
        show = ["git", "-C", str(remote), "show", f"published:{into}"]
        text = subprocess.run(show, check=True, capture_output=True, text=True).stdout
        compile(text, into, "exec")
        given = [paths.REPOSITORY / into, *paths.REPOSITORY.glob(pattern)]
        assert functions(text) == set().union(*(functions(path.read_text()) for path in given))
        assert all(path.read_text() in text for path in given)


def test_what_is_measured_stays_in_the_files_that_the_tree_has(tmp_path, monkeypatch):
    monkeypatch.setenv(measured.WANTED, "/tool:/data")
    publish(paths.REPOSITORY, tmp_path / "remote.git")
    there = git(tmp_path / "remote.git", "ls-tree", "-r", "--name-only", "published")
    for pattern in MERGED.values():
        for path in paths.REPOSITORY.glob(pattern):
            assert str(path.relative_to(paths.REPOSITORY)) in there


@pytest.mark.parametrize(
    "other", ["def here():\n    return 2\n", "from y import here\n", "max = 1\n"]
)
def test_what_means_something_else_in_another_file_stays_a_file(tree, tmp_path, other):
    (tree / "_modules/virt.py").write_text("def here():\n    return 1\n")
    (tree / "_modules/virt_a.py").write_text("def there():\n    return 1\n")
    publish(tree, tmp_path / "remote.git")
    listed = ["ls-tree", "--name-only", "published", "_modules/"]
    assert git(tmp_path / "remote.git", *listed) == ["_modules/virt.py"]
    (tree / "_modules/virt_b.py").write_text(other)
    publish(tree, tmp_path / "remote.git")
    names = ["virt.py", "virt_a.py", "virt_b.py"]
    assert git(tmp_path / "remote.git", *listed) == [f"_modules/{name}" for name in names]


def test_the_library_is_one_file_and_what_unpacks_it(tree, tmp_path):
    remote = tmp_path / "remote.git"
    publish(tree, remote)
    show = ["git", "-C", str(remote), "show"]
    found = subprocess.run(
        [*show, "published:_utils/saltvirt/library.zip"], check=True, capture_output=True
    ).stdout
    with zipfile.ZipFile(io.BytesIO(found)) as archive:
        assert archive.namelist() == ["saltvirt/bundle.py", "saltvirt/units.py"]
        assert archive.read("saltvirt/units.py") == b"_utils/saltvirt/units.py"
    begins = subprocess.run(
        [*show, "published:_utils/saltvirt/__init__.py"], check=True, capture_output=True
    ).stdout
    assert begins == PACKED.read_bytes()


def test_each_change_is_a_commit_on_the_last_and_no_change_is_none(tree, tmp_path):
    remote = tmp_path / "remote.git"
    first = publish(tree, remote)
    assert publish(tree, remote) == first
    (tree / "_modules/virt.py").write_text("new")
    (tree / "LICENSE").unlink()
    second = publish(tree, remote)
    assert git(remote, "rev-list", "published") == [second, first]
    assert "LICENSE" not in git(remote, "ls-tree", "-r", "--name-only", "published")


def test_the_users_repository_and_index_are_not_touched(tree, tmp_path):
    git(tree, "init", "-q")
    git(tree, "add", "Makefile")
    before = git(tree, "status", "--porcelain"), git(tree, "count-objects")
    publish(tree, tmp_path / "remote.git")
    assert (git(tree, "status", "--porcelain"), git(tree, "count-objects")) == before


def test_a_folder_without_anything_to_serve_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(LabError, match="none of the folders"):
        publish(tmp_path / "empty", tmp_path / "remote.git")


def test_a_remote_that_cannot_be_reached_is_named(tree):
    with pytest.raises(LabError, match=r"/nowhere/x\.git"):
        publish(tree, "/nowhere/x.git")
