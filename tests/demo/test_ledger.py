"""What counts as an error: everything that is not one charge of the right amount with the right receipt."""

import pytest

from retrysafe.demo.client import Payment
from retrysafe.demo.ledger import Charge, reconcile

TEA = Payment("tea", "ada", 290, "key")
TEA_TWICE = TEA._replace(clicks=2)
TAKEN = Charge("r-1", "ada", "tea", 290)


def test_right() -> None:
    """One charge, and every click got its receipt."""
    found = reconcile([TEA_TWICE], {"tea": ["r-1", "r-1"]}, [TAKEN])
    assert found.errors == {}
    assert (found.expected, found.taken, found.difference) == (290, 290, 0)


@pytest.mark.parametrize(
    ("payment", "receipts", "charges", "error"),
    [
        (TEA, ["r-1"], [], "never charged"),
        (TEA, ["r-1"], [TAKEN, TAKEN._replace(receipt="r-2")], "charged 2 times"),
        (TEA, ["r-1"], [TAKEN._replace(cents=291)], "charged 291 cents to ada"),
        (TEA, ["r-1"], [TAKEN._replace(customer="bob")], "charged 290 cents to bob"),
        (TEA, [], [TAKEN], "got no receipt"),
        (TEA_TWICE, ["r-1"], [TAKEN], "got no receipt"),
        (TEA, ["r-2"], [TAKEN], "receipt is r-2"),
        (TEA_TWICE, ["r-1", "r-2"], [TAKEN], "receipt is r-1 and r-2"),
    ],
)
def test_wrong(payment: Payment, receipts: list[str], charges: list[Charge], error: str) -> None:
    """Lost, doubled, another amount, another customer, no receipt, or another one."""
    assert error in reconcile([payment], {"tea": receipts}, charges).errors["tea"]


def test_errors_that_cancel_out() -> None:
    """One payment doubled and another of the same price lost: the sum is right, and both are errors."""
    cake = TEA._replace(order="cake")
    found = reconcile([TEA, cake], {"tea": ["r-1"], "cake": ["r-2"]}, [TAKEN, TAKEN._replace(receipt="r-2")])
    assert found.difference == 0
    assert set(found.errors) == {"tea", "cake"}


def test_a_charge_without_an_order() -> None:
    """It is found although no customer has its order."""
    assert reconcile([], {}, [TAKEN]).errors == {"tea": "was charged, and is not an order of any customer"}
