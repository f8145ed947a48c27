"""The package that pip installs: Salt's loader finds all of it, and synced files take
precedence."""

import json
import os
import shutil
import subprocess
import sys
import textwrap
import zipfile

import pytest

import saltvirt
from tests.lab import paths, publish
from tests.tools import wheel

KINDS = ("modules", "states", "runners", "pillar", "engines", "grains", "output")
LOAD = """
    import json, sys
    import salt.config, salt.loader

    def where(name):
        return sys.modules[name].__file__

    def load():
        functions = salt.loader.minion_mods(opts, utils=salt.loader.utils(opts))
        assert "virt.versions" in functions
        return functions["virt.versions"]()["path"]

    grains = {"saltversion": "3008.3", "kernel": "Linux", "os": "Debian", "os_family": "Debian"}
    opts = salt.config.apply_minion_config({
        "extension_modules": sys.argv[1], "cachedir": sys.argv[1] + "/cache",
        "file_client": "local", "grains": grains, "id": "hv1", "__role": "minion",
    })
    def say(**found):
        print("SAYS " + json.dumps(found), flush=True)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that pip installs into."""
    folder = tmp_path_factory.mktemp("pip")
    found = wheel.build(folder / "wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
    subprocess.run([*pip, "--no-deps", "--target", folder / "site", found], check=True)
    return folder / "site"


@pytest.fixture
def extmods(tmp_path):
    (tmp_path / "extmods").mkdir()
    return tmp_path / "extmods"


def sync(extmods):
    """As a sync leaves it."""
    for kind in KINDS:
        shutil.copytree(paths.REPOSITORY / f"_{kind}", extmods / kind, dirs_exist_ok=True)
    shutil.copytree(paths.REPOSITORY / "_utils", extmods / "utils", dirs_exist_ok=True)


def salt(installed, extmods, code):
    """What a process says that has Salt's configuration and loader."""
    argv = [sys.executable, "-c", textwrap.dedent(LOAD) + textwrap.dedent(code), str(extmods)]
    env = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False, cwd="/")
    lines = [line for line in done.stdout.splitlines() if line.startswith("SAYS ")]
    assert done.returncode == 0 and lines, done.stderr
    return json.loads(lines[-1].removeprefix("SAYS "))


def test_salt_finds_every_kind(installed, extmods):
    found = salt(
        installed, extmods,
        """
        functions = salt.loader.minion_mods(opts)
        utils = salt.loader.utils(opts)
        say(
            modules="virt.pool_info" in functions,
            states="virt.pool_running" in salt.loader.states(opts, functions, utils, None),
            runners="virt.query" in salt.loader.runner(opts),
            pillar="libvirt" in salt.loader.pillars(opts, functions),
            engines="libvirt_events.start" in salt.loader.engines(opts, functions, {}, utils),
            output="virt_query" in salt.loader.outputters(opts),
            grains=salt.loader.grains(opts)["virt_host"]["arch"] != "",
        )
        """,
    )  # fmt: skip
    assert found == dict.fromkeys(KINDS, True)


def test_nothing_of_it_is_on_the_path_of_other_programs(installed):
    assert sorted(path.name for path in installed.iterdir() if "dist-info" not in path.name) == [
        "salt_virt"
    ]


def test_alone_it_is_used(installed, extmods):
    found = salt(installed, extmods, "say(path=load(), file=where('saltvirt'))")
    assert found["path"] == f"{installed}/salt_virt/library/saltvirt"
    assert found["file"] == f"{installed}/salt_virt/library/saltvirt/__init__.py"


def test_what_a_sync_has_brought_wins_with_all_its_parts(installed, extmods):
    sync(extmods)
    code = """
        functions = salt.loader.minion_mods(opts)
        runners = salt.loader.runner(opts)
        functions["virt.versions"], runners["virt.query"]
        ours = [m.__file__ for n, m in sys.modules.items()
                if n.startswith(("saltvirt", "salt.loaded.ext"))
                and getattr(m, "__file__", None) and "virt" in m.__file__]
        say(path=load(), ours=ours)
    """
    found = salt(installed, extmods, code)
    assert found["path"] == f"{extmods}/utils/saltvirt"
    assert found["ours"]
    assert not [path for path in found["ours"] if path.startswith(str(installed))]


def test_a_process_that_began_without_the_synced_one_takes_it_when_it_is_there(installed, extmods):
    code = f"""
        import shutil
        first = load()
        for kind in {(*KINDS, "utils")!r}:
            shutil.copytree("{paths.REPOSITORY}/_" + kind, sys.argv[1] + "/" + kind)
        say(first=first, then=load())
    """
    found = salt(installed, extmods, code)
    assert found["first"].startswith(str(installed))
    assert found["then"] == f"{extmods}/utils/saltvirt"


def test_the_digest_is_the_same_by_each_way(installed, extmods):
    by_pip = salt(installed, extmods, "say(**salt.loader.minion_mods(opts)['virt.versions']())")
    sync(extmods)
    by_sync = salt(installed, extmods, "say(**salt.loader.minion_mods(opts)['virt.versions']())")
    shutil.rmtree(extmods / "utils/saltvirt")
    (extmods / "utils/saltvirt").mkdir()
    library = paths.REPOSITORY / publish.LIBRARY
    shutil.copy(library / "bundle.py", extmods / "utils/saltvirt/__init__.py")
    names = sorted(str(path.relative_to(paths.REPOSITORY)) for path in library.rglob("*.py"))
    content = publish.packed(paths.REPOSITORY, names)
    (extmods / "utils/saltvirt" / publish.ARCHIVE).write_bytes(content)
    packed = salt(installed, extmods, "say(**salt.loader.minion_mods(opts)['virt.versions']())")
    assert [one["install_method"] for one in (by_pip, by_sync, packed)] == ["pip", "sync", "sync"]
    assert by_pip["digest"] == by_sync["digest"] == packed["digest"]
    assert len(packed["digest"]) == 12
    (extmods / "utils/saltvirt" / publish.ARCHIVE).unlink()
    shutil.copytree(library, extmods / "utils/saltvirt", dirs_exist_ok=True)
    (extmods / "utils/saltvirt/added.py").write_text("")
    other = salt(installed, extmods, "say(**salt.loader.minion_mods(opts)['virt.versions']())")
    assert other["digest"] != packed["digest"]


def test_the_wheel_contains_every_file(tmp_path):
    library = paths.REPOSITORY / publish.LIBRARY
    expected = {"salt_virt/__init__.py"} | {
        f"salt_virt/library/{path.relative_to(library.parent)}" for path in library.rglob("*.py")
    }
    expected |= {
        f"salt_virt/{kind}/{path.name}"
        for kind in KINDS
        for path in (paths.REPOSITORY / f"_{kind}").glob("*.py")
    }
    with zipfile.ZipFile(wheel.build(tmp_path)) as archive:
        names = set(archive.namelist())
        [metadata] = [name for name in names if name.endswith(".dist-info/METADATA")]
        text = archive.read(metadata).decode("utf-8")
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert 'Requires-Dist: libvirt-python; extra == "hypervisor"' in text
    assert f"Version: {saltvirt.__version__}" in text
