"""How a property's value stands in the XML: as text, number, yes/no, size, presence."""

from saltvirt import units


class Text:
    """The text itself."""

    writes_false = False

    def read(self, node, attribute):
        """The value at a node, or None."""
        found = node.get(attribute) if attribute else (node.text or "").strip()
        return None if found is None or (found == "" and not attribute) else self.parse(found)

    def write(self, node, attribute, value):
        """Puts a value at a node."""
        if attribute:
            node.set(attribute, self.format(value))
        else:
            node.text = self.format(value)

    def clear(self, node):
        """Takes the text of a node away."""
        node.text = None

    def parse(self, text):
        return text

    def format(self, value):
        return str(value)


class Number(Text):
    """A whole number; what is none (a driver's own word) stays text."""

    def parse(self, text):
        try:
            return int(text, 0)
        except ValueError:
            return text


class Choice(Text):
    """Two words that mean yes and no."""

    writes_false = True

    def __init__(self, yes, no):
        self.words = {True: yes, False: no}

    def parse(self, text):
        return {word: value for value, word in self.words.items()}.get(text, text)

    def format(self, value):
        return self.words[value] if isinstance(value, bool) else str(value)


class Presence:
    """True when the element is there."""

    writes_false = False

    def read(self, _node, _attribute):
        return True

    def write(self, node, _attribute, _value):
        pass

    def clear(self, _node):
        pass


class State:
    """An element that means yes unless its attribute ``state`` says off."""

    writes_false = True

    def read(self, node, _attribute):
        return node.get("state", "on") != "off"

    def write(self, node, _attribute, value):
        node.set("state", "on" if value else "off")

    def clear(self, node):
        node.attrib.pop("state", None)


class Size(Text):
    """A size as text with an attribute ``unit``; read and written as a number of ``unit``s."""

    def __init__(self, unit, default):
        self.unit = unit
        self.default = default

    def read(self, node, attribute):
        return self.scaled((node.text or "").strip(), node.get("unit"))

    def scaled(self, text, unit):
        """A number in another unit as one in ours; None for none."""
        if text in (None, ""):
            return None
        if str(text) == "0":
            return 0
        return units.parse_bytes(text, unit or self.default) // units.parse_bytes(1, self.unit)

    def write(self, node, attribute, value):
        node.text = str(value)
        node.set("unit", self.unit)

    def clear(self, node):
        node.text = None
        node.attrib.pop("unit", None)


STR = Text()
INT = Number()
YES_NO = Choice("yes", "no")
ON_OFF = Choice("on", "off")
FLAG = Presence()
STATE = State()
KIB = Size("KiB", "KiB")
BYTES = Size("bytes", "bytes")
