"""Quantities as Kubernetes writes them."""

from __future__ import annotations

from fractions import Fraction

import pytest

from headwater.topology.quantities import amount


@pytest.mark.parametrize(
    "quantity, expected",
    [
        ("10Gi", 10 << 30),
        ("1.5Gi", 3 << 29),
        ("1024Mi", 1 << 30),
        ("1Ki", 1024),
        ("1Ei", 1 << 60),
        ("1E", 10**18),
        ("1e3", 1000),
        ("2E-1", Fraction(1, 5)),
        ("1500m", Fraction(3, 2)),
        ("5k", 5000),
        ("7.", 7),
        (".5G", 5 * 10**8),
        ("123", 123),
        ("much", 0),
    ],
)
def test_quantities_as_an_api_server_writes_them(quantity: str, expected: Fraction) -> None:
    assert amount(quantity) == expected
