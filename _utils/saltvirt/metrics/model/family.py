"""A metric with all its samples, independent of the output format."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

# prefix of all names
PREFIX = "saltvirt_"
GAUGE, COUNTER = "gauge", "counter"

# name of a label to its value, which may be any text
Labels = dict[str, str]


class Sample(NamedTuple):
    """One number. labels: unique in a Family."""

    labels: Labels
    value: float


@dataclass(frozen=True)
class Family:
    """name: without ``saltvirt_`` and, for a counter, without ``_total``. kind: GAUGE or COUNTER.
    help_text: one sentence."""

    name: str
    kind: str
    help_text: str
    samples: Iterable[Sample]


def gauge(name: str, help_text: str, samples: Iterable[Sample]) -> Family:
    """A Family of values that can decrease."""
    return Family(name, GAUGE, help_text, samples)


def single_gauge(name: str, help_text: str, labels: Labels, value: float) -> Family:
    """A gauge with one sample."""
    return Family(name, GAUGE, help_text, [Sample(labels, value)])
