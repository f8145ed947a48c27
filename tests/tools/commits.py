"""Check commit messages: ``area: imperative``, at most 60 characters, the reason in the body.

With a file, check the message in it: ``.githooks/commit-msg``. Without, check the subjects of all
commits since BASE: ``make lint`` and CI. A clone without BASE, such as a shallow one, is skipped.
"""

import re
import subprocess
import sys
from pathlib import Path

# the last commit before the rule
BASE = "31db1cfab195c73c8512a2e1e6144e401badcdf4"
MOST = 60
SUBJECT = re.compile(r"[a-z0-9/_.*-]+: [^ ].*[^. ]")
# of git itself, and what a rebase folds away
OWN = ("Merge ", "Revert ", "fixup! ", "squash! ", "amend! ")
_NOT_IMPERATIVE = re.compile(r"[a-z]+(ed|ing)")
_IMPERATIVE = {
    "bring", "embed", "exceed", "feed", "need", "ping", "proceed", "seed", "shed", "speed",
    "string",
}  # fmt: skip


def subject_problem(subject):
    """Return what is wrong with a subject; None if nothing is."""
    if subject.startswith(OWN):
        return None
    if not SUBJECT.fullmatch(subject):
        return "the subject is not 'area: imperative' without a full stop"
    if len(subject) > MOST:
        return f"the subject has {len(subject)} characters, not at most {MOST}"
    verb = subject.partition(": ")[2].split(" ")[0]
    if verb[0].isupper() or (_NOT_IMPERATIVE.fullmatch(verb) and verb not in _IMPERATIVE):
        return f"{verb!r} is not an imperative in lower case"
    return None


def message_problem(message):
    """Return what is wrong with a message without git's comments; None if nothing is."""
    text = message.partition("# ------------------------ >8")[0]
    lines = [line.rstrip() for line in text.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    problem = subject_problem(subject)
    if problem or subject.startswith(OWN):
        return problem
    if len(lines) < 3 or lines[1] or not any(lines[2:]):
        return "the body, after an empty line, does not give the reason"
    return None


def history_problems(tree, base=BASE):
    """Return 'commit: subject: problem' of the commits since a base; None without that history."""
    try:
        revisions = [
            "git",
            "-C",
            str(tree),
            "log",
            "--no-merges",
            "--format=%h %s",
            f"{base}..HEAD",
        ]
        log = subprocess.run(revisions, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = []
    for line in log.splitlines():
        commit, _, subject = line.partition(" ")
        problem = subject_problem(subject)
        if problem:
            found.append(f"{commit}: {subject}: {problem}")
    return found


def main(arguments):
    """Check the message in a file, or the history. Return the exit code."""
    if arguments:
        problem = message_problem(Path(arguments[0]).read_text(encoding="utf-8"))
        problems = [problem] if problem else []
    else:
        problems = history_problems(Path(__file__).resolve().parents[2]) or []
    for problem in problems:
        print(f"commit message: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
