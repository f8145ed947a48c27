"""Publish the folders that a master serves, and nothing else, to a branch.

gitfs cannot hide files: what is in the branch that a master lists is what every
minion can read. So the branch is made of the served folders only; tests/ and
docs/ stay out of it. The library is one file there (_utils/saltvirt/bundle.py says
why), and so are the execution modules and the states of the name virt: at each highstate a
minion asks its master for every file. The user's own index and repository are not touched.
"""

import ast
import builtins
import io
import os
import runpy
import sys
import tempfile
import zipfile
from pathlib import Path

from tests.lab import measured
from tests.lab.sh import LabError, run

SERVED = (
    "_modules", "_runners", "_states", "_pillar", "_output", "_engines", "_grains", "_utils",
    "_returners", "_beacons", "formulas", "README.md", "LICENSE",
)  # fmt: skip
MERGED = {"_modules/virt.py": "_modules/virt_*.py", "_states/virt.py": "_states/virt_*.py"}
LIBRARY, ARCHIVE = "_utils/saltvirt", "library.zip"
BRANCH = "published"
WHO = {
    "GIT_AUTHOR_NAME": "Salt Virt", "GIT_AUTHOR_EMAIL": "salt-virt@localhost",
    "GIT_COMMITTER_NAME": "Salt Virt", "GIT_COMMITTER_EMAIL": "salt-virt@localhost",
}  # fmt: skip


def publish(tree, remote, branch=BRANCH, message="Published from a working tree"):
    """Commit the served folders of the folder `tree` on a branch of `remote`.

    A remote that is a path and does not exist is made as a bare repository.
    Returns the commit's hash; the branch stays where it is when nothing changed.
    """
    tree = Path(tree)
    if isinstance(remote, Path) and not remote.exists():
        run(["git", "init", "-q", "--bare", f"--initial-branch={branch}", remote])
    with tempfile.TemporaryDirectory(prefix="salt-virt-publish-") as scratch:
        git = Git(Path(scratch), tree)
        parent = git.fetch(str(remote), branch)
        served = [name for name in SERVED if (tree / name).exists()]
        if not served:
            raise LabError(f"{tree} has none of the folders that a master serves")
        git("add", "--all", "--", *served)
        pack(git, tree)
        if not os.environ.get(measured.WANTED):  # which lines ran is told by the files of the tree
            merge(git, tree)
        content = git("write-tree")
        if parent and git("rev-parse", f"{parent}^{{tree}}") == content:
            return parent
        parents = ("-p", parent) if parent else ()
        commit = git("commit-tree", *parents, "-m", message, content)
        git("push", "-q", str(remote), f"{commit}:refs/heads/{branch}")
        return commit


def pack(git, tree):
    """Have the library as one file in the index, and what unpacks it."""
    names = sorted(git("ls-files", "-z", "--", f"{LIBRARY}/").rstrip("\0").split("\0"))
    unpacks = (tree / LIBRARY / "bundle.py").read_bytes()
    git("rm", "-r", "-q", "--cached", "--", LIBRARY)
    git.put(f"{LIBRARY}/__init__.py", unpacks)
    git.put(f"{LIBRARY}/{ARCHIVE}", packed(tree, names))


def merge(git, tree):
    """Have the files of each of MERGED as one in the index."""
    for into, pattern in MERGED.items():
        others = sorted(str(path.relative_to(tree)) for path in tree.glob(pattern))
        text = others and merged(tree, [into, *others])
        if text:
            git("rm", "-q", "--cached", "--", *others)
            git.put(into, text.encode())


def merged(tree, names):
    """The text of adapters as one file; None where a name would mean something else in it.

    Salt itself makes one module of files that have the same virtual name. Each file is there as it
    is, below its name, so that a line of a traceback is found again.
    """
    bound, texts, used = {}, [], set()
    for name in names:
        texts.append(f"# {name}\n{(tree / name).read_text(encoding='utf-8')}")
        tops = ast.parse(texts[-1])
        used |= {one.id for one in ast.walk(tops) if isinstance(one, ast.Name)}
        for what, meaning in bindings(tops):
            if bound.setdefault(what, meaning) != meaning:
                return None
    # one of Python's own would mean something else to whoever uses it
    if any(hasattr(builtins, what) for what in used & {*bound}):
        return None
    return "\n\n".join(texts)


def bindings(tree):
    """(Name, what it means) of each name at the top of a file; None for what is not known."""
    for node in tree.body:
        if isinstance(node, ast.With) and ast.unparse(node.items[0]) == "saltvirt.later()":
            yield from bindings(node)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            whence = getattr(node, "module", None)
            for one in node.names:
                yield one.asname or one.name, f"{whence} {one.name}"
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, ast.dump(node)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            # what every adapter begins with
            if ast.unparse(node) != "saltvirt = saltvirt.fresh()":
                yield node.targets[0].id, ast.dump(node.value)
        elif not isinstance(node, ast.If) and ast.get_docstring(ast.Module([node], [])) is None:
            yield "_", ast.dump(node)


def packed(tree, names):
    """The archive (bytes) of the library's files of a tree; the same for the same files."""
    rules = runpy.run_path(str(tree / LIBRARY / "bundle.py"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in names:
            entry = zipfile.ZipInfo(str(Path(name).relative_to("_utils")))
            entry.compress_type, entry.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
            archive.writestr(entry, (tree / name).read_bytes())
        archive.comment = b"0" * rules["DIGITS"]
    return rules["with_digest"](content.getvalue())


class Git:
    """git with a repository of its own, that looks at the files of `tree`."""

    def __init__(self, folder, tree):
        self.tree = tree
        clean = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
        kept = {k: v for k, v in os.environ.items() if k.startswith("GIT_SSL") or k == "GIT_SSH"}
        self.env = {**clean, **kept, **WHO, "GIT_DIR": str(folder), "GIT_WORK_TREE": str(tree)}
        run(["git", "init", "-q", "--bare", folder], env={**clean, **kept})

    def __call__(self, *arguments, check=True):
        return run(["git", *arguments], env=self.env, cwd=self.tree, check=check).stdout.strip()

    def put(self, path, content):
        """Have a file of this content (bytes) in the index."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            blob = self("hash-object", "-w", "--no-filters", file.name)
        self("update-index", "--add", "--cacheinfo", f"100644,{blob},{path}")

    def fetch(self, remote, branch):
        """The commit at which the remote's branch is, fetched; None when there is none."""
        line = self("ls-remote", remote, f"refs/heads/{branch}")
        if not line:
            return None
        self("fetch", "-q", "--depth=1", "--no-tags", remote, f"refs/heads/{branch}")
        return line.split()[0]


if __name__ == "__main__":
    where = sys.argv[1]
    publish(Path(__file__).resolve().parents[2], where, *sys.argv[2:3])
    print(f"published to {' '.join(sys.argv[1:3])}")
