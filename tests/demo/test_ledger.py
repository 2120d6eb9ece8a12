"""What the books call wrong: everything that is not one charge, of the right sum, with the right receipt."""

import pytest

from retrysafe.demo.client import Payment
from retrysafe.demo.ledger import Charge, balance

TEA = Payment("tea", "ada", 290, "key")
TEA_TWICE = TEA._replace(clicks=2)
TAKEN = Charge("r-1", "ada", "tea", 290)


def test_right() -> None:
    """One charge, and every click was told about it."""
    found = balance([TEA_TWICE], {"tea": ["r-1", "r-1"]}, [TAKEN])
    assert found.wrong == {}
    assert (found.should, found.taken, found.difference) == (290, 290, 0)


@pytest.mark.parametrize(
    ("payment", "receipts", "charges", "said"),
    [
        (TEA, ["r-1"], [], "never charged"),
        (TEA, ["r-1"], [TAKEN, TAKEN._replace(receipt="r-2")], "charged 2 times"),
        (TEA, ["r-1"], [TAKEN._replace(cents=291)], "charged 291 cents to ada"),
        (TEA, ["r-1"], [TAKEN._replace(customer="bob")], "charged 290 cents to bob"),
        (TEA, [], [TAKEN], "never heard of it"),
        (TEA_TWICE, ["r-1"], [TAKEN], "never heard of it"),
        (TEA, ["r-2"], [TAKEN], "was told r-2"),
        (TEA_TWICE, ["r-1", "r-2"], [TAKEN], "was told r-1 and r-2"),
    ],
)
def test_wrong(payment: Payment, receipts: list[str], charges: list[Charge], said: str) -> None:
    """Lost, doubled, another sum, another customer, not told, or told something else."""
    assert said in balance([payment], {"tea": receipts}, charges).wrong["tea"]


def test_two_errors_do_not_make_a_right() -> None:
    """One payment doubled and another of the same price lost: the sum is right, and the books are not."""
    cake = TEA._replace(order="cake")
    found = balance([TEA, cake], {"tea": ["r-1"], "cake": ["r-2"]}, [TAKEN, TAKEN._replace(receipt="r-2")])
    assert found.difference == 0
    assert set(found.wrong) == {"tea", "cake"}


def test_a_charge_that_nobody_meant() -> None:
    """It is found even though nobody asks about its order."""
    assert balance([], {}, [TAKEN]).wrong == {"tea": "was charged, and nobody meant to pay it"}
