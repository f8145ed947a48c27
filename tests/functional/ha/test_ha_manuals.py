"""The configuration reference has the defaults of high availability."""

import dataclasses

import pytest

pytest.importorskip("salt")

from saltvirt.ha.model.policy import HaPolicy
from tests.functional.docs.test_manuals import CONFIGURATION


@pytest.mark.parametrize("field", dataclasses.fields(HaPolicy), ids=lambda f: f.name)
def test_the_defaults_of_high_availability_are_the_codes(field):
    assert CONFIGURATION[f"virt:ha:{field.name}"][0].strip("`") == str(field.default)
