"""Programs like those of public reports: the check names op, line and remedy."""

from __future__ import annotations

import pytest

from opwright import check_tpu
from opwright_runtime.tpu_check.remedies import remedies
from tpu.support.reports.programs import PROGRAMS, Program

ROWS = {row.id: row for row in remedies()}
NAMES = [f"{program.op}-{program.row}" for program in PROGRAMS]


@pytest.mark.rotating
@pytest.mark.parametrize("program", PROGRAMS, ids=NAMES)
def test_check_tpu_names_op_line_and_remedy_of_a_reported_program(
    program: Program,
) -> None:
    report = check_tpu(program.function, *program.given, chips="v5e")
    found = {each.op: each for each in report.blockers}
    blocker = found[program.op]
    assert blocker.remedy == ROWS[program.row].remedy
    assert blocker.code is not None and blocker.code.endswith("# stops")
    assert "support/reports/" in str(blocker.where)


def test_reported_programs_are_at_least_twenty() -> None:
    assert len(PROGRAMS) >= 20
