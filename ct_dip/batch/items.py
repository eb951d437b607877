"""Which items of a dataset an evaluation takes."""

import re
from collections.abc import Sequence

from ct_dip.errors import InputError
from ct_dip.text import shortened


def parse_items(given: str | Sequence[int] | None, count: int) -> list[int]:
    """Return numbers of items in their order: of ``0:100``, ``0:3553:10``, ``3,7,20:30``, or a list.

    Args:
        given: ``None``: all of them.
        count: how many the dataset has.

    Raises:
        InputError: names what is not a number of an item, or comes twice.
    """
    numbers: list[int] = []
    if given is None:
        numbers = list(range(count))
    elif isinstance(given, str):
        for part in given.split(","):
            numbers += _range(part.strip(), count)
    else:
        numbers = list(given)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < count:
            raise InputError(f"--items: {number!r} is not one of the dataset's items, 0 to {count - 1}")
    if not numbers:
        raise InputError(f"--items {shortened(repr(given))} are none; the dataset has 0 to {count - 1}")
    if len(set(numbers)) < len(numbers):
        twice = next(number for number in numbers if numbers.count(number) > 1)
        raise InputError(f"--items: item {twice} is given twice; drop one of them")
    return numbers


def _range(text: str, count: int) -> list[int]:
    if re.fullmatch(r"\d{1,9}", text):
        return [int(text)]
    match = re.fullmatch(r"(\d{0,9}):(\d{0,9})(?::([1-9]\d{0,8}))?", text)
    if match is None:
        raise InputError(
            f"--items {shortened(text)!r} are no items; write for example 0:100, 0:3553:10 or 3,7,20:30"
        )
    first, stop, step = (int(word) if word else None for word in match.groups())
    if stop is not None and stop > count:
        fitting = f"{first or 0}:{count}" if (first or 0) < count else f"0:{count}"
        raise InputError(f"--items {text}: the dataset has {count} items; write {fitting}")
    return list(range(count))[first:stop:step]
