"""The report of a check."""

from __future__ import annotations

from dataclasses import dataclass

from opwright_runtime.tpu_check.findings import Findings


@dataclass(frozen=True)
class Report(Findings):
    """The results of a check; `print` shows them as tables.

    Attributes:
        program: the name of the program that was checked.
        arguments: the arguments of the compiled program, in its order, with captured
            variables.
        compiles: whether the program compiles for every requested chip.
        refused: whether XLA or libtpu refuses it for a chip. After a timeout, both this
            and `compiles` may be False.
        blockers: the parts that XLA cannot compile for any chip.
        compilations: one for each chip. Blockers hold for every TPU, so there are none
            if there are blockers.
        padded_outputs: the outputs whose size values decide. XLA pads each to a bound.
        comparison: of values, if it was asked for.
        chips: the requested chips.
        path: the path of the model, if one was given.
        signature: the name of the SavedModel's signature; None for other programs.
        training: the value of `training` in the call of a Keras model or layer. None
            for other programs, and if the call has no such argument.
        versions: those of TensorFlow and libtpu, by the name of the package.
    """

    def __str__(self) -> str:
        from opwright_runtime.tpu_check import tables

        return tables.text(self)
