"""Which ops compile for XLA and for TPUs.

`make tpu-ops` compiles each op's example with XLA and libtpu, and writes the results
into `runs_on.json`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from opwright_runtime._tpu_dtypes import missing_on_tpus

__all__ = ["NOT_TRIED", "TARGETS", "RunsOn", "is_known", "runs_on"]

#: XLA's own compiler for the CPU, and generations of TPUs.
TARGETS: Final = ("XLA", "v4", "v5e", "v5p", "v6e")
#: The reason for an op that was not tried.
NOT_TRIED: Final = "not tried"


@dataclass(frozen=True, repr=False)
class RunsOn:
    """The targets for which the example of an op compiles, with the example's shapes.

    In the compiled example, 32-bit numbers replace 64-bit ones if TPUs or XLA's kernel
    only support 32-bit numbers.

    Attributes:
        op: its OP_NAME.
        reasons: for each of `TARGETS`: None if it compiles, or why it does not.
        tried_with: the versions of TensorFlow and libtpu.
        xla_dtypes: by type attr the dtypes of XLA's kernels, for `refused_dtypes`.
            Only an op's class fills it in.
    """

    op: str
    reasons: Mapping[str, str | None]
    tried_with: Mapping[str, str]
    xla_dtypes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def compiles(self) -> tuple[str, ...]:
        """The targets for which it compiles."""
        return tuple(name for name, why in self.reasons.items() if why is None)

    @property
    def refused_dtypes(self) -> Mapping[str, str]:
        """The example's dtypes that XLA's kernels lack, by type attr."""
        return dict(_refused(self.reasons["XLA"]))

    def _words(self, why: str | None) -> str:
        if why is None:
            return "compiles"
        if not (refused := _refused(why)):
            return why
        example = ", ".join(f"{attr}={dtype}" for attr, dtype in refused)
        served = ", ".join(
            f"{attr} = {', '.join(map(_marked, self.xla_dtypes[attr]))}"
            for attr, _ in refused
            if attr in self.xla_dtypes
        )
        rest = f"XLA has kernels for {served}" if served else "XLA has no kernel for it"
        return f"the example has {example}; {rest}; check_tpu tries other dtypes"

    def __repr__(self) -> str:
        by_reason: dict[str | None, list[str]] = {}
        for name, why in self.reasons.items():
            by_reason.setdefault(why, []).append(name)
        rows = [
            f"{', '.join(names)}: {self._words(why)}"
            for why, names in by_reason.items()
        ]
        versions = ", ".join(f"{name} {own}" for name, own in self.tried_with.items())
        return "\n".join([f"{self.op}, tried with {versions}", *rows])


def _marked(dtype: str) -> str:
    """The name of a dtype of XLA's kernels, with a note if TPUs do not have it."""
    return f"{dtype} (not on TPUs)" if missing_on_tpus([dtype]) else dtype


def _refused(why: str | None) -> list[tuple[str, str]]:
    """Type attrs and dtypes in a reason like "XLA has no kernel for T=string"."""
    text = (why or "").partition("XLA has no kernel for ")[2]
    return re.findall(r"(\w+)=(\w+)", text)


def is_known(op_name: str) -> bool:
    """Whether it is one of TensorFlow's public ops. The table has all of these."""
    return op_name in _table()["ops"]


def runs_on(op_name: str) -> RunsOn:
    """The results for an op."""
    table = _table()
    found: Mapping[str, str] | str = table["ops"].get(op_name, NOT_TRIED)
    reasons = {
        name: found if isinstance(found, str) else found.get(name) for name in TARGETS
    }
    return RunsOn(
        op_name, MappingProxyType(reasons), MappingProxyType(table["tried_with"])
    )


@cache
def _table() -> Mapping[str, Any]:
    """The content of runs_on.json.

    `ops` has a value for each OP_NAME: why each target fails, by target, or a text that
    says why the op was not tried.
    """
    text = Path(__file__).with_suffix(".json").read_text("utf-8")
    table: Mapping[str, Any] = json.loads(text)
    return table
