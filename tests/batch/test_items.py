"""Items as text."""

import pytest

from ct_dip.batch.items import parse_items
from ct_dip.errors import InputError


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, list(range(12))),
        ("0:3", [0, 1, 2]),
        ("9:", [9, 10, 11]),
        ("::5", [0, 5, 10]),
        ("3, 7,10:12", [3, 7, 10, 11]),
        ([5, 2], [5, 2]),
    ],
)
def test_items_are_read(given, expected):
    assert parse_items(given, 12) == expected


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("0:13", "the dataset has 12 items; write 0:12"),
        ("15:19", "the dataset has 12 items; write 0:12"),
        ("12", "12 is not one of the dataset's items, 0 to 11"),
        ("-1", "'-1' are no items"),
        ("a:b", "write for example 0:100"),
        ("0:5:0", "are no items"),
        ("5:5", "are none"),
        ("1,0:2", "item 1 is given twice"),
        ([0.5], "0.5 is not one"),
        ([], "are none"),
    ],
)
def test_what_is_no_item_is_refused(given, text):
    with pytest.raises(InputError, match=text):
        parse_items(given, 12)
