"""Run programs, and the one error that the lab shows to users."""

import subprocess


class LabError(Exception):
    """What went wrong and what to do, in one sentence."""


def run(argv, *, check=True, timeout=None, env=None, input=None, cwd=None):
    """Run a program to its end and return its CompletedProcess, with text.

    Raises LabError with the program's last words when it fails (unless
    ``check=False``) or is not there.
    """
    argv = [str(part) for part in argv]
    try:
        done = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=timeout,
            env=env,
            input=input,
            cwd=cwd,
        )
    except FileNotFoundError as exc:
        raise LabError(f"{argv[0]} is not installed") from exc
    except subprocess.TimeoutExpired as exc:
        raise LabError(f"{' '.join(argv)} did not end within {timeout} s") from exc
    if check:
        refuse_failed(argv, done)
    return done


def refuse_failed(argv, done):
    """Raises LabError with the last words of a program that failed."""
    if done.returncode:
        words = "\n".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-15:])
        raise LabError(f"{' '.join(argv)} failed with code {done.returncode}:\n{words}")
