"""The results of a check, as data."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

#: Of an open dimension, in the shape that an error proposes.
_EXAMPLE_SIZE = 8


class TpuCheckError(ValueError):
    """The arguments do not describe a program that can be checked."""


def no_saved_model(path: Path) -> TpuCheckError:
    """The error for a path without a SavedModel; it names the next step."""
    if path.is_dir():
        said = (
            "no SavedModel there. A Keras model writes one with model.export(folder); a"
            " .keras file is taken as it is"
        )
    elif not path.exists():
        said = "no such file or folder"
        if ":" in path.name:
            said += (
                ". Only the command opwright-tpu-check takes file.py:name: import the"
                " function or model, and give check_tpu the object"
            )
    elif path.suffix in (".h5", ".hdf5"):
        said = (
            "a Keras model in HDF5 is not taken: load it with keras.models.load_model,"
            " and save it as a .keras file"
        )
    else:
        said = (
            "no folder of a SavedModel and no .keras file. A Keras model writes a"
            " SavedModel with model.export(folder); the command takes a function as"
            " file.py:name"
        )
    return TpuCheckError(f"{path}: {said}")


class OpenShapeError(TpuCheckError):
    """Inputs of the program have no fixed shape, and none was given.

    Attributes:
        shapes: the shape of each input, by name. None stands for an open dimension, or
            for a shape whose rank is not known.
        dtypes: of a function, which takes examples, the dtype of each input by name.
    """

    def __init__(
        self,
        shapes: Mapping[str, tuple[int | None, ...] | None],
        dtypes: Mapping[str, str] | None = None,
    ) -> None:
        self.shapes = shapes
        self.dtypes = dtypes or {}
        super().__init__(f"{self.reason}: give {self.arguments}")

    @property
    def reason(self) -> str:
        """Why the shapes have to be given."""
        shapes = " and ".join(
            f"input {name!r} has shape {'unknown' if shape is None else shape}"
            for name, shape in self.shapes.items()
        )
        return f"{shapes}, and a TPU program takes fixed shapes"

    @property
    def examples(self) -> Mapping[str, str]:
        """Sizes that would fix each shape, like "8, 128"; "" if the rank is unknown."""
        return {
            name: ", ".join(map(str, example_sizes(shape or ())))
            for name, shape in self.shapes.items()
        }

    @property
    def arguments(self) -> str:
        """The arguments of `check_tpu` that would fix the shapes."""
        shapes = {name: f"[{sizes or '...'}]" for name, sizes in self.examples.items()}
        for name, dtype in self.dtypes.items():
            shapes[name] = f"tf.TensorSpec({shapes[name]}, tf.{dtype})"
        if all(name.isidentifier() for name in shapes):
            return ", ".join(f"{name}={shape}" for name, shape in shapes.items())
        named = ", ".join(f"{name!r}: {shape}" for name, shape in shapes.items())
        return f"**{{{named}}}"


def example_sizes(shape: Sequence[int | None]) -> list[int]:
    """A shape with an example of each open dimension."""
    return [_EXAMPLE_SIZE if size is None else size for size in shape]


class InputNamesError(OpenShapeError):
    """Examples of several inputs came without the names of the inputs.

    Attributes:
        program: the name of the program.
    """

    def __init__(
        self, program: str, shapes: Mapping[str, tuple[int | None, ...] | None]
    ) -> None:
        self.program = program
        super().__init__(shapes)

    @property
    def reason(self) -> str:
        return f"{self.program} has several inputs"


class MissingInputError(TpuCheckError):
    """A function needs more arguments.

    Attributes:
        names: of the missing arguments.
    """

    def __init__(self, function: str, names: Sequence[str], known: str) -> None:
        self.names = tuple(names)
        missing = " and ".join(map(repr, names))
        super().__init__(f"{function}: missing {missing}; its inputs are: {known}")


@dataclass(frozen=True)
class Chip:
    """A TPU to compile for.

    Attributes:
        topology: the smallest slice of it that libtpu accepts, by libtpu's name.
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


def close_chips(name: object) -> str:
    """A question with the chips whose names are close to another; "" if none is."""
    close = difflib.get_close_matches(str(name).lower(), CHIPS, n=2, cutoff=0.7)
    return f"; did you mean {' or '.join(sorted(close))}?" if close else ""


@dataclass(frozen=True)
class Argument:
    """An argument of the compiled program.

    Attributes:
        name: the name of the function's parameter, or of the variable. TensorFlow calls
            a variable without a name "Variable".
        kind: "argument" if the caller passes it. A "variable" or a "captured" tensor is
            one that the function refers to; both become arguments of the program.
        dtype: its TensorFlow name.
        shape: its shape in the compiled program.
        bytes: its size, without the padding of the TPU's layout, which the sizes in
            `Compilation` include.
    """

    name: str
    kind: Literal["argument", "variable", "captured"]
    dtype: str
    shape: tuple[int, ...]
    bytes: int

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Output:
    """An output of the compiled program whose size values decide.

    Attributes:
        name: its key if the program returns a dict, or else its number.
        dtype: its TensorFlow name.
        bound: the shape to which XLA pads it, the largest that it can have.
    """

    name: str
    dtype: str
    bound: tuple[int, ...]


@dataclass(frozen=True)
class Blocker:
    """A part of a program that XLA cannot compile.

    Attributes:
        op: type of the op (OP_NAME); "argument", "variable" or "captured" if XLA has no
            values of an argument's dtype; "" if XLA does not say.
        name: name of the op in the graph, or of the argument.
        reason: why XLA cannot compile it.
        where: file and line of the user's code that created the op. In a SavedModel,
            which has no lines, the scopes that it is in: names of layers and functions.
            None if neither is known.
        code: the text of that line.
        remedy: what to write instead, in Markdown; None if no remedy is known.
        cause: "kernel" if XLA has no kernel, "host" if only the host can run the op,
            "dtype" if XLA or TPUs have kernels for other dtypes, "constant" if values
            decide what XLA must know when it compiles, "shape" for other shapes; "" if
            XLA does not say.
        arguments: the op's arguments that are at fault, if the cause is "constant" or
            "dtype".
        dtypes: the dtypes that the op can have on TPUs, if the cause is "dtype".
    """

    op: str
    name: str
    reason: str
    where: str | None = None
    code: str | None = None
    remedy: str | None = None
    cause: str = ""
    arguments: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Compilation:
    """The result of compiling a program for one chip.

    Sizes are in bytes, as libtpu counts them for the TPU's layout. This layout pads
    tensors, so the sizes of small ones exceed those of their values.

    Attributes:
        chip: one of `CHIPS`.
        seconds: duration of the compilation, or until libtpu was stopped.
        error: libtpu's error; None if it compiles.
        timed_out: whether libtpu was stopped at the timeout. Then it is not known
            whether the program compiles.
        remedy: what to write instead, in Markdown, if there is an error; None if no
            remedy is known.
        argument_bytes: size of the arguments, including variables.
        output_bytes: size of the outputs, including new values of variables.
        alias_bytes: size of the outputs that overwrite arguments: variables that are
            updated in place.
        temporary_bytes: size of the temporary memory that the program needs.
        code_bytes: size of the program itself.
        flops: XLA's estimate for one call. The body of a loop counts once.
        bytes_accessed: XLA's estimate for one call, over all levels of memory.
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
    timed_out: bool = False
    remedy: str | None = None

    @property
    def compiles(self) -> bool:
        """Whether libtpu compiled it; False also if it timed out."""
        return self.error is None


@dataclass(frozen=True)
class Difference:
    """The first op whose values differ between two modes.

    Attributes:
        op: type of the op (OP_NAME).
        name: name of the op in the graph.
        modes: the two modes: "eager", "graph" or "XLA".
        error: the largest difference, relative to the largest value; of integers the
            largest difference; infinite if infinities, NaNs or shapes differ.
        allowed: what kernels of the dtype may differ by.
        where: file and line of the code that made the op, as in `Blocker`.
        code: the text of that line.
    """

    op: str
    name: str
    modes: tuple[str, str]
    error: float
    allowed: float
    where: str | None = None
    code: str | None = None


@dataclass(frozen=True)
class Comparison:
    """What a program does eagerly, in a graph and compiled by XLA for the CPU.

    Attributes:
        errors: by mode the error that the program raises; None if it runs. A SavedModel
            has no mode "eager".
        difference: the first op whose values differ; None if none does.
        random_outputs: how many outputs are not compared, because random numbers decide
            them. XLA draws others.
    """

    errors: Mapping[str, str | None]
    difference: Difference | None = None
    random_outputs: int = 0

    @property
    def agrees(self) -> bool:
        """Whether all modes give the same values, or all refuse the input."""
        refused = [error is not None for error in self.errors.values()]
        return self.difference is None and (all(refused) or not any(refused))


@dataclass(frozen=True)
class Findings:
    """All results of a check, which `Report` shows."""

    program: str
    arguments: tuple[Argument, ...]
    blockers: tuple[Blocker, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    padded_outputs: tuple[Output, ...] = ()
    comparison: Comparison | None = None
    chips: tuple[str, ...] = ()
    path: str | None = None
    signature: str | None = None
    training: bool | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def compiles(self) -> bool:
        """Whether the program compiles for every requested chip."""
        return not self.blockers and all(each.compiles for each in self.compilations)

    @property
    def refused(self) -> bool:
        """Whether XLA or libtpu refuses it for a chip; a timeout is no refusal."""
        return bool(self.blockers) or any(
            not each.compiles and not each.timed_out for each in self.compilations
        )

    def as_dict(self) -> dict[str, Any]:
        """The report in plain values, as `--json` prints it."""
        compilations = [
            {"compiles": each.compiles, **asdict(each)} for each in self.compilations
        ]
        return {
            "compiles": self.compiles,
            "refused": self.refused,
            **asdict(self),
            "compilations": compilations,
        }
