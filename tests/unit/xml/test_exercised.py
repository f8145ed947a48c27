"""Every declared property is read from, and written to, a recorded document."""

import importlib
import pkgutil

import pytest

import saltvirt.xml
from saltvirt.xml.base import Child, Children, Element, Prop
from saltvirt.xml.domain.backup import Checkpoint, DomainBackup
from saltvirt.xml.domain.domain import Domain
from saltvirt.xml.domain.snapshot import DomainSnapshot
from saltvirt.xml.network.network import Network
from saltvirt.xml.storage.pool import Pool
from saltvirt.xml.storage.secret import Secret
from saltvirt.xml.storage.volume import Volume
from tests.golden import HOME

DOCUMENTS = (Domain, Network, Pool, Volume, Secret, DomainSnapshot, DomainBackup, Checkpoint)
ROOTS = {cls.TAG: cls for cls in DOCUMENTS}


def classes():
    for module in pkgutil.walk_packages(saltvirt.xml.__path__, "saltvirt.xml."):
        loaded = importlib.import_module(module.name)
        for value in vars(loaded).values():
            own = isinstance(value, type) and value.__module__ == loaded.__name__
            if own and issubclass(value, Element) and value is not Element:
                yield value


def owner(cls, name):
    """The class that declares a property: what is inherited is the same everywhere."""
    return next(klass for klass in cls.__mro__ if name in vars(klass))


def declared(cls):
    found = {}
    for klass in reversed(cls.__mro__):
        for name, value in vars(klass).items():
            if isinstance(value, Prop | Child | Children):
                found[name] = value
    return found


def documents():
    for path in sorted(HOME.rglob("*.xml")):
        text = path.read_text(encoding="utf-8")
        root = ROOTS.get(text.lstrip("<").split(maxsplit=1)[0].split(">")[0])
        if root is not None:
            yield root.fromstring(text)


def walk(element):
    """The element and all declared elements below it."""
    yield element
    for name, kind in declared(type(element)).items():
        if isinstance(kind, Child) and getattr(element, name):
            yield from walk(getattr(element, name))
        elif isinstance(kind, Children):
            for child in getattr(element, name):
                yield from walk(child)


def samples():
    """(class, property) -> an element of a recorded document that has it."""
    found = {}
    for document in documents():
        for element in walk(document):
            for name, kind in declared(type(element)).items():
                value = getattr(element, name)
                there = len(value) if isinstance(kind, Children) else value is not None
                if isinstance(kind, Child):
                    there = bool(value)
                if there:
                    found.setdefault((owner(type(element), name), name), element)
    return found


SAMPLES = samples()
ALL = [cls for cls in classes() if any(owner(cls, name) is cls for name in declared(cls))]


def test_classes_of_all_packages_are_looked_at():
    assert len(ALL) > 80


@pytest.mark.parametrize("cls", ALL, ids=lambda cls: cls.__name__)
def test_each_property_is_read_taken_away_and_written(cls):
    for name, kind in declared(cls).items():
        if owner(cls, name) is not cls:
            continue
        assert (cls, name) in SAMPLES, f"no recorded document has {name}"
        element = SAMPLES[cls, name].copy()
        if isinstance(kind, Children):
            check_children(element, name)
        elif isinstance(kind, Child):
            check_child(element, name)
        else:
            check_value(element, name)


def check_children(element, name):
    before = [child.tostring().strip() for child in getattr(element, name)]
    kept = [child.copy() for child in getattr(element, name)]
    setattr(element, name, [])
    assert len(getattr(element, name)) == 0, name
    setattr(element, name, kept)
    assert [child.tostring().strip() for child in getattr(element, name)] == before, name


def check_child(element, name):
    kept = getattr(element, name).copy()
    setattr(element, name, None)
    assert not getattr(element, name), name
    setattr(element, name, kept)
    assert getattr(element, name).copy().tostring().strip() == kept.tostring().strip(), name


def check_value(element, name):
    value = getattr(element, name)
    setattr(element, name, None)
    if value is not True or getattr(element, name) is not True:  # <hap/> alone means on
        assert getattr(element, name) is None, name
    setattr(element, name, value)
    assert getattr(element, name) == value, name


def test_documents_are_written_as_they_were_read():
    for document in documents():
        text = document.tostring(indent=True)
        assert type(document).fromstring(text).tostring(indent=True) == text
