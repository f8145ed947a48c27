"""XML elements as objects whose properties read and write an ElementTree in place.

Parts that a class does not declare are preserved: parsing, editing and writing changes only what
was edited. A property is declared by its path below the element::

    class Disk(Element):
        TAG = "disk"
        type = Prop("@type")
        driver_type = Prop("driver/@type")
        read_only = Prop("readonly", FLAG)

New children are inserted in the order of the declarations.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, overload
from xml.etree import ElementTree

from saltvirt.errors import InvalidInput
from saltvirt.xml.kinds import STR, Kind
from saltvirt.xml.tree import Steps, empty, find, insert, parse, steps_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


E = TypeVar("E", bound="Element")
T = TypeVar("T")


class Element:
    """An XML element. It may be absent: then it is false, and created when it is first written to.

    Keyword arguments set properties: ``Disk(type="file", device="cdrom")``.
    """

    TAG: ClassVar[str]

    def __init__(self, node: ElementTree.Element | None = None, /, **properties: Any) -> None:
        root = ElementTree.Element(self.TAG) if node is None else node
        self._node: ElementTree.Element | None = root
        self._owner: Element | None = None
        self._path: Steps = ()
        for name, value in properties.items():
            if not isinstance(getattr(type(self), name, None), (Prop, Child, Children)):
                raise TypeError(f"{type(self).__name__} has no property {name!r}")
            setattr(self, name, value)

    @classmethod
    def placeholder(cls: type[E], owner: Element, path: Steps) -> E:
        """An element at these steps below another one, which may be absent."""
        element = cls()
        element._node, element._owner, element._path = None, owner, path
        return element

    @classmethod
    def fromstring(cls: type[E], text: str) -> E:
        """Parse an XML text. Raises InvalidInput if it has another tag."""
        node = parse(text)
        if node.tag != cls.TAG:
            raise InvalidInput(f"expected a <{cls.TAG}> document, not <{node.tag}>")
        return cls(node)

    def tostring(self, indent: bool = False) -> str:
        """The XML text; ``indent=True`` formats it, for people and golden files."""
        node = self.node
        if node is None:
            return ""
        if indent:
            node = copy.deepcopy(node)
            ElementTree.indent(node)
        node, tail = copy.copy(node), node.tail
        node.tail = None
        text = ElementTree.tostring(node, encoding="unicode")
        return text + "\n" if indent or tail is None else text

    def copy(self: E) -> E:
        """A copy of the element, outside of any document."""
        return type(self)(copy.deepcopy(self.need()))

    @property
    def node(self) -> ElementTree.Element | None:
        """The ElementTree node, or None if the element is absent."""
        if self._owner is not None:
            above = self._owner.node
            self._node = find(above, self._path) if above is not None else None
        return self._node

    def need(self) -> ElementTree.Element:
        """The ElementTree node, created if it is absent."""
        node = self.node
        if node is None:  # only a child element can be absent
            node = self._node = make(cast(Element, self._owner), self._path)
        return node

    def __bool__(self) -> bool:
        return self.node is not None

    def prune(self) -> None:
        """Remove the element from its owner if it is empty."""
        if self._owner is not None and self.node is not None and empty(self.node):
            remove(self._owner, self._path)
            self._owner.prune()

    @classmethod
    def order(cls, prefix: Steps = ()) -> list[str]:
        """The tags of children below ``prefix``, in the order of the declarations."""
        tags = []
        for klass in cls.__mro__:
            for declared in vars(klass).values():
                steps = getattr(declared, "steps", ())
                if steps[: len(prefix)] == tuple(prefix) and len(steps) > len(prefix):
                    tags.append(steps[len(prefix)])
        return list(dict.fromkeys(tags))


def make(element: Element, steps: Steps) -> ElementTree.Element:
    """The node at these steps below an element, created with its parents if missing."""
    node = element.need()
    for depth, step in enumerate(steps):
        below = node.find(step)
        if below is None:
            below = ElementTree.Element(step)
            insert(node, below, type(element).order(steps[:depth]))
        node = below
    return node


def remove(element: Element, steps: Steps) -> None:
    """Remove the existing node at these steps, and parents that become empty."""
    path = [cast(ElementTree.Element, element.node)]
    for step in steps:
        path.append(cast(ElementTree.Element, path[-1].find(step)))
    while len(path) > 1:
        node, parent = path.pop(), path[-1]
        index = list(parent).index(node)
        if index == len(parent) - 1 and index > 0:
            parent[index - 1].tail = node.tail
        parent.remove(node)
        if not empty(parent):
            return


class Prop(Generic[T]):
    """A value: an attribute (``a/@b``) or the text of an element (``a/b``)."""

    @overload
    def __init__(self: Prop[str], path: str) -> None: ...
    @overload
    def __init__(self, path: str, kind: Kind[T]) -> None: ...
    def __init__(self, path: str, kind: Kind[Any] = STR) -> None:
        self.path = path
        self.kind = kind
        self.steps, self.attribute = steps_of(path)

    def __set_name__(self, owner: type[Element], _name: str) -> None:
        self.owner = owner

    @overload
    def __get__(self, element: None, owner: Any = None) -> Prop[T]: ...
    @overload
    def __get__(self, element: Element, owner: Any = None) -> T | None: ...
    def __get__(self, element: Element | None, owner: Any = None) -> Prop[T] | T | None:
        if element is None:
            return self
        node = find(element.node, self.steps) if element.node is not None else None
        return None if node is None else self.kind.read(node, self.attribute)

    def __set__(self, element: Element, value: T | str | None) -> None:
        if value is None or (value is False and not self.kind.writes_false):
            self._take_away(element)
        else:
            self.kind.write(make(element, self.steps), self.attribute, value)

    def _take_away(self, element: Element) -> None:
        node = find(element.node, self.steps) if element.node is not None else None
        if node is None:
            return
        if self.attribute:
            node.attrib.pop(self.attribute, None)
        else:
            self.kind.clear(node)
        if empty(node) and self.steps:
            remove(element, self.steps)
        element.prune()


class Child(Generic[E]):
    """A child element: always an Element, absent (false) until a property is set."""

    def __init__(self, path: str, kind: type[E]) -> None:
        self.path = path
        self.kind = kind
        self.steps, _ = steps_of(path)

    @overload
    def __get__(self, element: None, owner: Any = None) -> Child[E]: ...
    @overload
    def __get__(self, element: Element, owner: Any = None) -> E: ...
    def __get__(self, element: Element | None, owner: Any = None) -> Child[E] | E:
        if element is None:
            return self
        return self.kind.placeholder(element, self.steps)

    def __set__(self, element: Element, value: E | None) -> None:
        node = find(element.node, self.steps) if element.node is not None else None
        if node is not None:
            remove(element, self.steps)
        if value:
            parent = make(element, self.steps[:-1])
            new = copy.deepcopy(value.need())
            new.tag = self.steps[-1]
            new.tail = None
            insert(parent, new, type(element).order(self.steps[:-1]))


class Children(Generic[E]):
    """All child elements of a tag: a list-like view that edits the document."""

    def __init__(self, path: str, kind: type[E]) -> None:
        self.path = path
        self.kind = kind
        self.steps, _ = steps_of(path)

    @overload
    def __get__(self, element: None, owner: Any = None) -> Children[E]: ...
    @overload
    def __get__(self, element: Element, owner: Any = None) -> Elements[E]: ...
    def __get__(self, element: Element | None, owner: Any = None) -> Children[E] | Elements[E]:
        if element is None:
            return self
        return Elements(element, self)

    def __set__(self, element: Element, values: Iterable[E] | None) -> None:
        view = Elements(element, self)
        values = [value.copy() for value in values or ()]
        for old in list(view):
            view.remove(old)
        for new in values:
            view.append(new)


class Elements(Generic[E]):
    """The view of :class:`Children`."""

    def __init__(self, element: Element, declared: Children[E]) -> None:
        self._element = element
        self._declared = declared

    def _list(self) -> list[E]:
        node, steps = self._element.node, self._declared.steps
        parent = find(node, steps[:-1]) if node is not None else None
        nodes = parent.findall(steps[-1]) if parent is not None else []
        return [self._declared.kind(child) for child in nodes]

    def __iter__(self) -> Iterator[E]:
        return iter(self._list())

    def __len__(self) -> int:
        return len(self._list())

    @overload
    def __getitem__(self, index: int) -> E: ...
    @overload
    def __getitem__(self, index: slice) -> list[E]: ...
    def __getitem__(self, index: int | slice) -> E | list[E]:
        return self._list()[index]

    def append(self, value: E) -> E:
        """Append an element after the others of its tag."""
        steps = self._declared.steps
        parent = make(self._element, steps[:-1])
        node = value.need()
        node.tag, node.tail = steps[-1], None
        insert(parent, node, type(self._element).order(steps[:-1]))
        return value

    def remove(self, value: E) -> None:
        """Remove an element of this list."""
        parent_node, node = find(self._element.node, self._declared.steps[:-1]), value.need()
        parent = cast(ElementTree.Element, parent_node)
        index = list(parent).index(node)
        if index == len(parent) - 1 and index > 0:
            parent[index - 1].tail = node.tail
        parent.remove(node)
        if len(self._declared.steps) > 1 and empty(parent):
            remove(self._element, self._declared.steps[:-1])
        self._element.prune()
