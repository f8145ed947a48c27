"""The agent as a service of its host: its program, its unit, its settings."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from saltvirt import errors, places, program
from saltvirt.haagent import settings, store, trial

PYTHON = "/usr/bin/python3"
SERVICE = "salt-virt-ha.service"
MODULE = "haagent.__main__"
_PATIENCE_S = 60
# so long an agent may take to try the new files and to go on by them
_TAKES_OVER_S, _LOOK_S = 90, 0.2

UNIT = f"""\
# written by Salt Virt (virt.ha_install)
[Unit]
Description=Salt Virt: the agent of high availability
# it ends before what it, and a guest that moves away, need when the host is shut down: then systemd
# starts nothing anew
After=network-online.target nss-lookup.target remote-fs.target
After=libvirtd.service virtqemud.service virtnetworkd.service virtstoraged.service
After=virtsecretd.service virtnodedevd.service virtlogd.service virtlockd.service
After=virt-guest-shutdown.target libvirt-guests.service
# guests' scopes end after this target, and only where it is there
Wants=network-online.target virt-guest-shutdown.target
ConditionPathExists={settings.PATH}
StartLimitIntervalSec=0

[Service]
ExecStart={PYTHON} {{program}}
ExecReload=/bin/kill -HUP $MAINPID
Restart=always
RestartSec=0.5
# its settings are wrong
RestartPreventExitStatus=78
# a process that hangs on storage must not delay the next start; it ends with its agent
KillMode=process
# guests move away, and shut down, each for shutdown_wait_s; poweroff.target waits for 30 minutes
TimeoutStopSec=1500
OOMScoreAdjust=-1000
Nice=-10
LimitNOFILE=65536
LimitMEMLOCK=infinity
NoNewPrivileges=yes

[Install]
WantedBy=multi-user.target
"""


@dataclass(frozen=True)
class Places:
    """Where it is put. python: what runs it. systemctl: the program. running: where the agent says
    by what it runs."""

    program: str = "/usr/lib/salt-virt/ha-agent.pyz"
    unit: str = f"/etc/systemd/system/{SERVICE}"
    settings: str = settings.PATH
    python: str = PYTHON
    systemctl: str = "systemctl"
    running: str = trial.file_of(f"{places.RUN}/ha")


@dataclass
class Done:
    """What was changed, or would be: a thing and in which way."""

    changes: dict[str, str] = field(default_factory=dict)
    comment: str = ""


def install(library: str, test: bool = False, where: Places | None = None) -> Done:
    """Program and unit as this library has them; an agent at work goes on by the new program.

    A new program is put in place only when it can be run here. Raises OperationFailed.
    """
    where = where or Places()
    done = Done()
    agent = program.made(library, MODULE)
    unit = UNIT.format(program=where.program).encode()
    new_program = _differs(where.program, agent, done)
    new_unit = _differs(where.unit, unit, done)
    if not test:
        if new_program:
            _put_program(where, agent)
        if new_unit:
            _put(where.unit, unit, 0o644)
            _systemctl(where, "daemon-reload")
        if not _says(where, "is-enabled"):
            done.changes[SERVICE] = "enabled"
            _systemctl(where, "enable", SERVICE)
    _refresh(where, done, test, program=agent)
    done.comment = _comment(done, test, "The agent is installed")
    return done


def configure(data: object, test: bool = False, where: Places | None = None) -> Done:
    """Its settings, and the service at work by them. Raises InvalidInput, with all that is wrong,
    before anything is changed; OperationFailed.
    """
    where = where or Places()
    done = Done()
    found = settings.parse(data, "settings")
    text = json.dumps(found.to_answer(), indent=1, sort_keys=True).encode() + b"\n"
    changed = _differs(where.settings, text, done)
    if not test and changed:
        _put(where.settings, text, 0o600)
    if os.path.exists(where.unit):
        if not test and not _says(where, "is-active"):
            done.changes[SERVICE] = "started"
            _systemctl(where, "start", SERVICE)
        _refresh(where, done, test, settings=text)
    done.comment = _comment(done, test, "The agent has these settings")
    return done


def _comment(done: Done, test: bool, settled: str) -> str:
    if not done.changes:
        return settled
    return "The agent would be changed" if test else settled


def _refresh(where: Places, done: Done, test: bool, **wanted: bytes) -> None:
    """An agent at work goes on by what is on the disk now: it is asked by what it runs, for what
    was to tell it may have been interrupted. Raises OperationFailed where it stays by the old."""
    if SERVICE in done.changes or not _says(where, "is-active") or _runs_by(where, wanted):
        return
    done.changes[SERVICE] = "goes on by the new one"
    if test:
        return
    _systemctl(where, "reload", SERVICE)
    end_s = time.monotonic() + _TAKES_OVER_S
    while not _runs_by(where, wanted):
        if time.monotonic() > end_s:
            raise errors.OperationFailed(
                f"the agent goes on by its old {' and '.join(wanted)}: journalctl -u {SERVICE} "
                "says why"
            )
        time.sleep(_LOOK_S)


def _runs_by(where: Places, wanted: dict[str, bytes]) -> bool:
    found = trial.running(where.running)
    return found is not None and all(
        getattr(found, what) == hashlib.sha256(data).hexdigest() for what, data in wanted.items()
    )


def _differs(path: str, data: bytes, done: Done) -> bool:
    try:
        old = Path(path).read_bytes()
    except FileNotFoundError:
        old = None
    except OSError as exc:
        raise errors.OperationFailed(f"cannot read {path}: {exc.strerror}") from exc
    if old != data:
        done.changes[path] = "made" if old is None else "replaced"
    return old != data


def _put(path: str, data: bytes, mode: int) -> None:
    try:
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        store.replace(path, data)
        os.chmod(path, mode)
    except OSError as exc:
        raise errors.OperationFailed(f"cannot write {path}: {exc.strerror}") from exc


def _put_program(where: Places, agent: bytes) -> None:
    trial = f"{where.program}.trial"
    _put(trial, agent, 0o644)
    try:
        _run((where.python, trial, "--check"), "the agent cannot be run here")
        os.rename(trial, where.program)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(trial)


def _systemctl(where: Places, *words: str) -> None:
    _run((where.systemctl, *words), f"systemctl {' '.join(words)}")


def _says(where: Places, question: str) -> bool:
    argv = (where.systemctl, "--quiet", question, SERVICE)
    try:
        found = subprocess.run(argv, capture_output=True, timeout=_PATIENCE_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise errors.OperationFailed(f"{' '.join(argv)}: {exc}") from exc
    return not found.returncode


def _run(argv: tuple[str, ...], what: str) -> None:
    try:
        found = subprocess.run(
            argv, capture_output=True, text=True, timeout=_PATIENCE_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as exc:
        raise errors.OperationFailed(f"{what}: {exc}") from exc
    if found.returncode:
        raise errors.OperationFailed(f"{what}: {found.stderr.strip() or found.stdout.strip()}")


def works_as(where: Places | None = None) -> str | None:
    """The host's name in high availability, None where no agent is at work. Raises InvalidInput,
    OperationFailed."""
    where = where or Places()
    if not os.path.exists(where.settings) or not _says(where, "is-active"):
        return None
    return settings.read(where.settings).host


def port(path: str = settings.PATH) -> int | None:
    """Where the agent of this host listens, None where it has no settings. Raises InvalidInput."""
    if not os.path.exists(path):
        return None
    found = settings.read(path)
    return found.where(found.host)[1]
