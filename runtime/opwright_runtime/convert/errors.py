"""The error of a model, or of a part of one, that cannot be converted."""

from __future__ import annotations


class ConvertError(ValueError):
    """A model was refused. Nothing was written.

    Attributes:
        node: the node at fault, or "" if the error is not about one.
        op: the op of that node, or "".
    """

    # AutoGraph keeps an exception with this mark as it is.
    ag_pass_through = True

    def __init__(self, message: str, *, node: str = "", op: str = "") -> None:
        super().__init__(message)
        self.node = node
        self.op = op

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (str(self), self.node, self.op)


def _rebuild(message: str, node: str, op: str) -> ConvertError:
    return ConvertError(message, node=node, op=op)


def refusal(op: str, node: str, why: str, remedy: str) -> ConvertError:
    """An error that says which node is refused, why, and what to do."""
    return ConvertError(f"node {node!r} ({op}): {why}; {remedy}", node=node, op=op)
