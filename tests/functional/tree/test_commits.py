"""Commit messages: what the hook and CI accept."""

import subprocess

import pytest

from tests.tools import api, commits


@pytest.mark.parametrize(
    "subject",
    [
        "build: find the packages in setup.cfg",
        "ha/model: seed the simulator",
        'Revert "docs: merge pages"',
        "fixup! docs: merge pages",
        "a: " + "b" * 57,
    ],
)
def test_a_subject_that_is_accepted(subject):
    assert commits.subject_problem(subject) is None


@pytest.mark.parametrize(
    ("subject", "problem"),
    [
        ("", "not 'area: imperative'"),
        ("find the packages", "not 'area: imperative'"),
        ("Build: find the packages", "not 'area: imperative'"),
        ("build: find the packages.", "without a full stop"),
        ("build: Find the packages", "not an imperative"),
        ("build: added the packages", "not an imperative"),
        ("build: finding the packages", "not an imperative"),
        ("a: " + "b" * 58, "61 characters"),
    ],
)
def test_a_subject_that_is_refused(subject, problem):
    assert problem in commits.subject_problem(subject)


def test_a_message_needs_its_reason():
    assert commits.message_problem("docs: merge pages\n\nThere were 40.\n") is None
    assert "reason" in commits.message_problem("docs: merge pages\n\n# a comment of git's\n")
    assert "reason" in commits.message_problem("docs: merge pages\nThere were 40.\n")
    assert commits.message_problem("fixup! docs: merge pages\n") is None
    verbose = "docs: merge pages\n\n# ------------------------ >8 ----\ndiff --git a/x b/x\n"
    assert "reason" in commits.message_problem(verbose)


def test_the_history_since_the_base(tmp_path):
    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
        done = subprocess.run(["git", "-C", tmp_path, *who, *words], capture_output=True,
                              text=True, check=True)  # fmt: skip
        return done.stdout.strip()

    git("init", "-q")
    for subject in ("An old one.", "docs: merge pages", "Docs merged"):
        git("commit", "-q", "--allow-empty", "-m", subject)
    base = git("rev-parse", "HEAD~2")
    [problem] = commits.history_problems(tmp_path, base)
    assert "Docs merged" in problem
    assert commits.history_problems(tmp_path, "0" * 40) is None
    assert commits.history_problems(tmp_path / "nowhere", base) is None


def test_every_commit_of_this_tree():
    problems = commits.history_problems(api.REPOSITORY)
    if problems is None:
        pytest.skip("no history")
    assert problems == []


def test_the_hook_checks_a_file(tmp_path):
    hook = api.REPOSITORY / ".githooks/commit-msg"
    message = tmp_path / "message"
    message.write_text("merged pages\n")
    argv = ["git", "-c", "safe.directory=*", "-C", api.REPOSITORY, "rev-parse"]
    if subprocess.run(argv, capture_output=True, check=False).returncode:
        pytest.skip("no repository")
    done = subprocess.run([hook, message], cwd=api.REPOSITORY, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 1
    assert "area: imperative" in done.stderr
