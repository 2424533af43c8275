"""What the shapes of an op come to, for tests that compare it with tensors."""

from __future__ import annotations

from opwright_notation.evaluation import Evaluation, Facts
from opwright_notation.sizes import MisfitError, Row
from opwright_notation.syntax import is_call, parsed


def shapes(text: str, facts: Facts, index: int | None = None) -> list[Row]:
    """The value of the expression `text`: one row, or all possible rows.

    Raises:
        MisfitError: known sizes contradict each other.
    """
    evaluation = Evaluation(facts, index)
    found: list[Row] = []
    refused: MisfitError | None = None
    for option in evaluation.options(parsed(text)):
        try:
            found.append(evaluation.tuple_row(option))
        except MisfitError as error:
            refused = error
    if refused is not None and not found:
        raise refused
    evaluation.hold(parsed(text))
    return found


def held(text: str, facts: Facts, index: int | None = None) -> list[Row] | None:
    """The same for the tensor behind the handle `text`; None if it is not stated."""
    node = parsed(text)
    node = node.args[0] if is_call(node, "where") else node
    if not is_call(node, "of"):
        return None
    evaluation = Evaluation(facts, index)
    return [evaluation.tuple_row(one) for one in evaluation.options(node.args[1])]


def fits(actual: Row, row: Row) -> bool:
    """Whether a row may be `actual`: the known sizes of both agree."""
    if ... in row or ... in actual:
        # Only sizes before the first ellipsis and after the last can be compared.
        for one, other in (
            (actual, row),
            (actual[::-1], row[::-1]),
        ):
            for size, wanted in zip(one, other, strict=False):
                if size is ... or wanted is ...:
                    break
                if None not in (size, wanted) and size != wanted:
                    return False
        least = [len([s for s in r if s is not ...]) for r in (actual, row)]
        if ... not in actual:
            return least[0] >= least[1]
        if ... not in row:
            return least[1] >= least[0]
        return True
    return len(actual) == len(row) and all(
        size is None or wanted is None or size == wanted
        for size, wanted in zip(actual, row, strict=True)
    )
