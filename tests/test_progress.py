"""Progress: how durations are written."""

from dataclasses import replace

import pytest

from ct_dip.cli.info import result_summary
from ct_dip.cli.reconstruct import outcome
from ct_dip.progress import format_duration
from tests.pages.test_report_page import synthetic_result


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "under 1 ms"),
        (0.0562, "56 ms"),
        (0.26, "0.3 s"),
        (2.34, "2.3 s"),
        (9.96, "10 s"),
        (59.4, "59 s"),
        (59.6, "1 min"),
        (230.2, "3 min 50 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h"),
        (3600 + 29, "1 h"),
        (1486 * 60, "24 h 46 min"),
    ],
)
def test_durations_are_written_as_people_do(seconds, text):
    assert format_duration(seconds) == text


def test_the_terminal_writes_durations_so():
    result = replace(synthetic_result(), seconds={"deep image prior": 200.0, "posterior": 30.2})
    assert "in 3 min 50 s" in outcome(result)
    assert result_summary(result)["time"] == "deep image prior 3 min 20 s, posterior 30 s"
