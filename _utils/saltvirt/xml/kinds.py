"""Representations of a property's value in XML: text, number, yes/no, size, presence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar, cast

from saltvirt import units

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element


T = TypeVar("T")


class Kind(Generic[T]):
    """The representation of a value at a node: in an attribute, or as the node's text."""

    writes_false = False

    def read(self, node: Element, attribute: str | None) -> T | None:
        """The value at a node, or None."""
        raw_text = node.get(attribute) if attribute else (node.text or "").strip()
        return (
            None if raw_text is None or (raw_text == "" and not attribute) else self.parse(raw_text)
        )

    def write(self, node: Element, attribute: str | None, value: T | str) -> None:
        """Write a value at a node; text is written unchanged."""
        if attribute:
            node.set(attribute, self.format(value))
        else:
            node.text = self.format(value)

    def clear(self, node: Element) -> None:
        """Remove the text of a node."""
        node.text = None

    def parse(self, text: str) -> T:
        """The value that a text means."""
        raise NotImplementedError

    def format(self, value: T | str) -> str:
        return str(value)


class TextKind(Kind[str]):
    """The text itself."""

    def parse(self, text: str) -> str:
        return text


class NumberKind(Kind[int]):
    """An integer; any other value (a driver's own word) stays text."""

    def parse(self, text: str) -> int:
        try:
            return int(text, 0)
        except ValueError:
            return cast(int, text)  # the value is only compared and written


class BooleanKind(Kind[bool]):
    """Two words that mean yes and no."""

    writes_false = True

    def __init__(self, true_text: str, false_text: str) -> None:
        self.texts = {True: true_text, False: false_text}

    def parse(self, text: str) -> bool:
        by_text = {word: value for value, word in self.texts.items()}
        return by_text[text] if text in by_text else cast(bool, text)  # another word is kept

    def format(self, value: bool | str) -> str:
        return self.texts[value] if isinstance(value, bool) else str(value)


class PresenceKind(Kind[bool]):
    """True if the element exists."""

    def read(self, _node: Element, _attribute: str | None) -> bool:
        return True

    def write(self, node: Element, _attribute: str | None, _value: bool | str) -> None:
        pass

    def clear(self, _node: Element) -> None:
        pass


class StateKind(Kind[bool]):
    """An element that means yes unless its attribute ``state`` is off."""

    writes_false = True

    def read(self, node: Element, _attribute: str | None) -> bool:
        return node.get("state", "on") != "off"

    def write(self, node: Element, _attribute: str | None, value: bool | str) -> None:
        node.set("state", "on" if value else "off")

    def clear(self, node: Element) -> None:
        node.attrib.pop("state", None)


class SizeKind(Kind[int]):
    """A size as text with an attribute ``unit``; read and written as a number of ``unit``s."""

    def __init__(self, unit: str, default: str) -> None:
        self.unit = unit
        self.default = default

    def read(self, node: Element, _attribute: str | None) -> int | None:
        return self.scaled((node.text or "").strip(), node.get("unit"))

    def scaled(self, text: str | int | None, unit: str | None) -> int | None:
        """Convert a number to this unit; None stays None."""
        if text in (None, ""):
            return None
        if str(text) == "0":
            return 0
        return units.parse_bytes(text, unit or self.default) // units.parse_bytes(1, self.unit)

    def write(self, node: Element, _attribute: str | None, value: int | str) -> None:
        node.text = str(value)
        node.set("unit", self.unit)

    def clear(self, node: Element) -> None:
        node.text = None
        node.attrib.pop("unit", None)


STR = TextKind()
INT = NumberKind()
YES_NO = BooleanKind("yes", "no")
ON_OFF = BooleanKind("on", "off")
FLAG = PresenceKind()
STATE = StateKind()
KIB = SizeKind("KiB", "KiB")
BYTES = SizeKind("bytes", "bytes")
