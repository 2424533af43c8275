"""The CUDA backend from Python: its C interface by ctypes, with torch's tensors.

Needs libopwright_cuda.so, torch and a GPU, and nothing of TensorFlow.
"""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

# "cpu" only for a library that takes the CPU for the device.
DEVICE = os.environ.get("OPWRIGHT_CHECK_DEVICE", "cuda")
INVALID_ARGUMENT, OUT_OF_MEMORY = 1, 4
_P, _L, _I, _F = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32, ctypes.c_float


class _Config(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("optimizer", ctypes.c_char_p),
        ("rows", _L),
        ("dimension", _L),
        ("hyper", _F * 6),
        ("clip_gradient", _F * 2),
        ("clip_weight", _F * 2),
        ("decay", _F),
        ("decay_times_rate", _I),
        ("accumulate", _I),
        ("every_row", _I),
        ("quantized", _I),
        ("lower", _F),
        ("upper", _F),
        ("buckets", _L),
        ("chunk_bytes", _L),
    ]


class _Bags(ctypes.Structure):
    _fields_ = [
        ("samples", _L),
        ("count", _L),
        ("starts", _P),
        ("ids", _P),
        ("weights", _P),
        ("scales", _P),
    ]


_ARGUMENTS = {
    "create": [_P, _P, _P],
    "write": [_P, _L, _L, _L, _L, _P, _P],
    "read": [_P, _L, _L, _L, _L, _P, _P],
    "lookup": [_P, _P, _P, _P],
    "update_bytes": [_P, _L, _L, _P],
    "update": [_P, _L, _P, _P, _F, _P, _L, _P],
    "check": [_P, _P],
}
_STEPS_ARGUMENTS = {
    "create": [_L, _L, _L, _L, _L, _P, _P],
    "enqueue": [_P, _P],
    "receive": [_P, _P],
    "send": [_P, _P],
}


class RefusedError(Exception):
    """A call that failed, with its status."""

    def __init__(self, status: int, problem: str) -> None:
        super().__init__(problem)
        self.status = status


class Library:
    """libopwright_cuda.so, its failures as exceptions."""

    def __init__(self, path: Path) -> None:
        self.native = ctypes.CDLL(str(path))
        self.native.opwright_cuda_error.restype = ctypes.c_char_p
        self.native.opwright_cuda_destroy.argtypes = [_P]
        self.native.opwright_cuda_destroy.restype = None
        self.native.opwright_steps_destroy.argtypes = [_P]
        self.native.opwright_steps_destroy.restype = None
        for of, functions in (("cuda", _ARGUMENTS), ("steps", _STEPS_ARGUMENTS)):
            for name, arguments in functions.items():
                getattr(self.native, f"opwright_{of}_{name}").argtypes = arguments

    def call(self, name: str, *arguments: Any, of: str = "cuda") -> None:
        status = getattr(self.native, f"opwright_{of}_{name}")(*arguments)
        if status:
            raise RefusedError(status, self.native.opwright_cuda_error().decode())


@dataclass
class Bags:
    """A feature's ids on the GPU; tensors as opwright_cuda_bags wants them."""

    starts: torch.Tensor
    ids: torch.Tensor
    weights: torch.Tensor | None = None
    scales: torch.Tensor | None = None

    @property
    def samples(self) -> int:
        return len(self.starts) - 1

    def native(self) -> _Bags:
        optional = [
            t if t is None else t.data_ptr() for t in (self.weights, self.scales)
        ]
        return _Bags(
            self.samples,
            len(self.ids),
            self.starts.data_ptr(),
            self.ids.data_ptr(),
            *optional,
        )


@dataclass
class Settings:
    """Of a table; `hyper` in the order of the optimizer's traits."""

    rows: int
    dimension: int
    optimizer: str = "stochastic_gradient_descent"
    hyper: list[float] = field(default_factory=list)
    decay: float = 0.0
    accumulate: bool = True
    every_row: bool = False
    quantization: tuple[float, float, int] | None = None
    chunk_bytes: int = 0


class Table:
    """A table on the current device, used on torch's current stream."""

    def __init__(self, library: Library, settings: Settings) -> None:
        self.library, self.settings = library, settings
        self.handle = _P()
        infinity = float("inf")
        lower, upper, buckets = settings.quantization or (0.0, 0.0, 0)
        config = _Config(
            b"table",
            settings.optimizer.encode(),
            settings.rows,
            settings.dimension,
            (_F * 6)(*settings.hyper),
            (_F * 2)(-infinity, infinity),
            (_F * 2)(-infinity, infinity),
            settings.decay,
            0,
            settings.accumulate,
            settings.every_row,
            settings.quantization is not None,
            lower,
            upper,
            buckets,
            settings.chunk_bytes,
        )
        self.library.call(
            "create", ctypes.byref(config), self.stream, ctypes.byref(self.handle)
        )
        self.workspace = torch.empty(0, dtype=torch.uint8, device=DEVICE)

    @property
    def stream(self) -> int:
        if DEVICE == "cpu":
            return 0
        return int(torch.cuda.current_stream().cuda_stream)

    def close(self) -> None:
        self.library.native.opwright_cuda_destroy(self.handle)

    def write(
        self, slot: int, values: torch.Tensor, first: int = 0, step: int = 1
    ) -> None:
        where = (slot, first, step, len(values), values.data_ptr())
        self.library.call("write", self.handle, *where, self.stream)

    def read(
        self, slot: int, count: int | None = None, first: int = 0, step: int = 1
    ) -> torch.Tensor:
        count = self.settings.rows if count is None else count
        values = torch.empty(count, self.settings.dimension, device=DEVICE)
        where = (slot, first, step, count, values.data_ptr())
        self.library.call("read", self.handle, *where, self.stream)
        return values

    def lookup(self, bags: Bags, out: torch.Tensor | None = None) -> torch.Tensor:
        if out is None:
            out = torch.empty(bags.samples, self.settings.dimension, device=DEVICE)
        native = ctypes.byref(bags.native())
        self.library.call("lookup", self.handle, native, out.data_ptr(), self.stream)
        return out

    def update(
        self, sources: list[tuple[Bags, torch.Tensor]], learning_rate: float
    ) -> None:
        """One step, from each source's bags and gradients [samples, dimension]."""
        needed = _L()
        count = sum(len(bags.ids) for bags, _ in sources)
        self.library.call(
            "update_bytes", self.handle, len(sources), count, ctypes.byref(needed)
        )
        if len(self.workspace) < needed.value:
            self.workspace = torch.empty(needed.value, dtype=torch.uint8, device=DEVICE)
        bags = (_Bags * len(sources))(*(bags.native() for bags, _ in sources))
        gradients = (_P * len(sources))(*(g.data_ptr() for _, g in sources))
        self.library.call(
            "update",
            self.handle,
            len(sources),
            bags,
            gradients,
            learning_rate,
            self.workspace.data_ptr(),
            len(self.workspace),
            self.stream,
        )

    def check(self) -> None:
        self.library.call("check", self.handle, self.stream)
