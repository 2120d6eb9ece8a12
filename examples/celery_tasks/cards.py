"""A card network, as tasks call it.  It takes no keys: a card that is charged twice is charged twice.

Its books are a file with a line per charge, which shares nothing with the shop's database.
"""

import os
import secrets
from pathlib import Path

BOOKS = Path(os.environ.get("SHOP_CARDS", "cards.txt"))


def charge(order: str, cents: int) -> str:
    """Take the money.  Gives the number of the charge."""
    number = f"ch_{secrets.token_hex(4)}"
    with BOOKS.open("a") as books:
        books.write(f"{order} {cents} {number}\n")
    return number
