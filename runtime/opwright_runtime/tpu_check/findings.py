"""The results of a check, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, Literal


class TpuCheckError(ValueError):
    """The arguments do not describe a program that can be checked."""


@dataclass(frozen=True)
class Chip:
    """A TPU to compile for.

    Attributes:
        topology: the smallest slice of it that libtpu takes, as libtpu names it.
        hbm: memory of one chip, in bytes.
    """

    topology: str
    hbm: int


_GIB = 2**30

CHIPS: Mapping[str, Chip] = MappingProxyType(
    {
        "v4": Chip("v4:2x2x1", 32 * _GIB),
        "v5e": Chip("v5e:2x2", 16 * _GIB),
        "v5p": Chip("v5p:2x2x1", 95 * _GIB),
        "v6e": Chip("v6e:2x2", 32 * _GIB),
    }
)


@dataclass(frozen=True)
class Argument:
    """An argument of the compiled program.

    Attributes:
        name: the function's own name for it, or the variable's.
        kind: "argument" if the caller passes it. The function refers to a "variable" or
            a "captured" tensor; both become arguments of the program.
        dtype: by TensorFlow's name.
        shape: of one call.
        bytes: its size, without the padding of the TPU's layout.
    """

    name: str
    kind: Literal["argument", "variable", "captured"]
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Blocker:
    """A part of a program that XLA cannot compile.

    Attributes:
        op: type of the op (OP_NAME), or kind of the argument; "" if XLA does not say.
        name: name of the op in the graph, or of the argument.
        reason: why XLA cannot compile it.
        where: file and line of the user's code that made the op, where they are known.
        code: that line.
    """

    op: str
    name: str
    reason: str
    where: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Compilation:
    """The result of compiling a program for one chip; sizes are in bytes.

    Attributes:
        chip: one of `CHIPS`.
        seconds: duration of the compilation.
        error: libtpu's error; None if it compiles.
        argument_bytes: arguments, variables among them, as the TPU lays them out.
        output_bytes: outputs, new values of variables among them.
        alias_bytes: outputs that overwrite arguments: variables updated in place.
        temporary_bytes: memory that it needs while it runs.
        code_bytes: the program itself.
        flops: as XLA estimates them for one call; the body of a loop counts once.
        bytes_accessed: likewise, over all levels of memory.
    """

    chip: str
    seconds: float
    error: str | None = None
    argument_bytes: int | None = None
    output_bytes: int | None = None
    alias_bytes: int | None = None
    temporary_bytes: int | None = None
    code_bytes: int | None = None
    flops: float | None = None
    bytes_accessed: float | None = None

    @property
    def compiles(self) -> bool:
        return self.error is None


@dataclass(frozen=True)
class Findings:
    """All results of a check, which `Report` shows."""

    program: str
    arguments: tuple[Argument, ...]
    blockers: tuple[Blocker, ...] = ()
    compilations: tuple[Compilation, ...] = ()

    @property
    def compiles(self) -> bool:
        """Whether it compiles for every requested chip."""
        return not self.blockers and all(each.compiles for each in self.compilations)

    def as_dict(self) -> dict[str, Any]:
        """The report in plain values, as `--json` prints it."""
        compilations = [
            {"compiles": each.compiles, **asdict(each)} for each in self.compilations
        ]
        return {
            "compiles": self.compiles,
            **asdict(self),
            "compilations": compilations,
        }
