"""The outcomes of conversions and checks, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from opwright_runtime.convert.rewrite import Found

#: What becomes of a node that is not converted.
REFUSED: Final = "refused: see below"


@dataclass(frozen=True)
class Comparison:
    """The numbers of the result, compared with those of the source.

    Attributes:
        difference: the largest absolute difference of all outputs.
        tolerance: the largest difference that is accepted, for values up to 1.
        scale: the largest absolute value of the source's outputs.
        calls: how many calls were compared.
        source_ms: milliseconds of a call of the source.
        result_ms: milliseconds of a call of the result.
    """

    difference: float
    tolerance: float
    scale: float
    calls: int
    source_ms: float
    result_ms: float

    @property
    def allowed(self) -> float:
        """The largest difference that is accepted for these outputs."""
        return self.tolerance * max(self.scale, 1.0)


@dataclass(frozen=True)
class Conversion:
    """The outcome of a conversion.

    Attributes:
        source: the name of the model.
        target: the path of the result.
        format: "plain TensorFlow", "ONNX" or "TFLite".
        found: the recurrent nodes.
        source_bytes: the size of the source, as a SavedModel.
        result_bytes: the size of the result.
        comparisons: for each signature that was checked, its numbers.
        notes: what else to know about the result.
    """

    source: str
    target: str
    format: str
    found: tuple[Found, ...]
    source_bytes: int
    result_bytes: int
    comparisons: dict[str, Comparison]
    notes: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """The largest difference of all signatures; None without a check."""
        found = [each.difference for each in self.comparisons.values()]
        return max(found, default=None)

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON has it."""
        return asdict(self)


@dataclass(frozen=True)
class Verdict:
    """One runtime.

    Attributes:
        runtime: "TensorFlow without a GPU", "ONNX" or "TFLite".
        command: the conversion for it.
        barred: the ops that the runtime lacks, and the number of their nodes. Only
            nodes that the signature reaches count.
        refusal: why the conversion fails; None if it works.
    """

    runtime: str
    command: str
    barred: dict[str, int]
    refusal: str | None

    @property
    def works(self) -> bool:
        return self.refusal is None


@dataclass(frozen=True)
class Tried:
    """The outcome of a check.

    Attributes:
        source: the name of the model.
        ops: the number of its nodes.
        found: the recurrent nodes that signatures reach, and what the plain form has
            in their place, or that it is refused.
        verdicts: one for each runtime.
        others: the number of recurrent nodes that these signatures do not reach, as
            those of functions for gradients.
    """

    source: str
    ops: int
    found: tuple[Found, ...]
    verdicts: tuple[Verdict, ...]
    others: int = 0

    @property
    def works(self) -> bool:
        """Whether the model gets to every runtime."""
        return all(verdict.works for verdict in self.verdicts)

    def as_dict(self) -> dict[str, Any]:
        """The findings as JSON has them."""
        return asdict(self)
