"""What hosts and guests use, of the last hour, while pages are open."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from saltvirt.answers.guest_calls import HostRequest
from saltvirt.answers.inspect_calls import USAGE
from saltvirt.fleet.client import Fleet

# minimum time between samples, and how long they are kept
INTERVAL_S, _KEPT_S = 28, 3600


@dataclass(frozen=True)
class UsageSample:
    """One sample. hosts: host to its usage, as ``virt.top`` returns it."""

    taken_at: float
    hosts: dict[str, dict[str, Any]]

    def to_answer(self, has_guests: bool) -> dict[str, Any]:
        """As JSON. has_guests: with the usage of each guest."""
        hosts = {
            host: {key: value for key, value in usage.items() if has_guests or key != "guests"}
            for host, usage in self.hosts.items()
        }
        return {"at": self.taken_at, "hosts": hosts}


class UsageHistory:
    """The samples of the last hour, oldest first."""

    def __init__(self) -> None:
        self._samples: deque[UsageSample] = deque()

    def sample(self, fleet: Fleet, hosts: Sequence[str]) -> None:
        """Query the hosts, unless the last sample is recent. Raises as Fleet.call does."""
        now = time.time()
        if self._samples and 0 <= now - self._samples[-1].taken_at < INTERVAL_S:
            return
        answers, _ = USAGE.gather(fleet, list(hosts), HostRequest())
        while self._samples and not 0 <= now - self._samples[0].taken_at < _KEPT_S:
            self._samples.popleft()
        usage = {host: answer.to_answer() for host, answer in answers.items()}
        self._samples.append(UsageSample(now, usage))

    def since(self, taken_at: float) -> list[dict[str, Any]]:
        """The samples after a time, as JSON; only the last one has the guests."""
        samples = [sample for sample in list(self._samples) if sample.taken_at > taken_at]
        return [sample.to_answer(sample is samples[-1]) for sample in samples]
