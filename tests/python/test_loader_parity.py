"""Every argument with 30 data sets, against torch."""

import pytest

pytest.importorskip("torch")

import parity  # noqa: E402


@pytest.mark.parametrize("name", parity.SETS)
def test_same_as_torch(name):
    different = {
        argument: result
        for argument in parity.ARGUMENTS
        if parity.known(name, argument) is None
        and (result := parity.compare(name, argument)) != "same"
    }
    assert different == {}
