"""Asks cuDNN itself where the parameters of recurrent layers lie, by ctypes.

It calls only functions that run nothing on a device. Without a GPU there is no real
handle. cuDNN 9 requires a handle and does not read it, so a made-up one works. cuDNN
does not promise that: with a GPU, a real one is used.
"""

from __future__ import annotations

import ctypes
from ctypes import byref
from pathlib import Path

from gpu.support.rnn_core import MODES, Layers, Layout, Part, Place

_P, _I, _Size = ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t
DOUBLE_BIAS, DEFAULT_MATH = 2, 0
# cuDNN's number and the bytes of an element.
TYPES = {"float32": (0, 4), "float64": (1, 8), "float16": (2, 2), "bfloat16": (9, 2)}
ALGORITHMS = ("standard", "persist_static", "persist_dynamic", "persist_static_small_h")
DIMENSIONS = 3  # That cuDNN gives these descriptors.
# An address of the parameters, which are not read.
SOMEWHERE = 1 << 32


class CudnnError(Exception):
    pass


class NotSupportedError(CudnnError):
    pass


class Cudnn:
    """A loaded libcudnn; `path` may be a name, as of one that torch has loaded."""

    def __init__(self, path: str | Path) -> None:
        self.native = ctypes.CDLL(str(path))
        self.native.cudnnGetVersion.restype = _Size
        self.native.cudnnGetErrorString.restype = ctypes.c_char_p
        self.handle, self.has_device = _P(), True
        try:
            self._call("Create", byref(self.handle))
        except CudnnError:
            self.has_device = False
            self._zeros = ctypes.create_string_buffer(1 << 20)
            self.handle = ctypes.cast(self._zeros, _P)

    @property
    def version(self) -> str:
        number = int(self.native.cudnnGetVersion())
        major, rest = divmod(number, 10000 if number >= 90000 else 1000)
        return f"{major}.{rest // 100}.{rest % 100}"

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self.native, f"cudnn{name}")(*arguments)
        if status:
            words = self.native.cudnnGetErrorString(status).decode()
            unsupported = words.endswith("NOT_SUPPORTED")
            kind = NotSupportedError if unsupported else CudnnError
            raise kind(f"cudnn{name}: {words}")

    def layout(
        self, layers: Layers, dtype: str = "float32", algorithm: str = "standard"
    ) -> Layout:
        """With two biases a gate, as the CudnnRNN ops have them."""
        number, item = TYPES[dtype]
        math = TYPES["float64" if dtype == "float64" else "float32"][0]
        dropout, rnn, size = _P(), _P(), _Size()
        self._call("CreateDropoutDescriptor", byref(dropout))
        self._call("CreateRNNDescriptor", byref(rnn))
        nothing = (ctypes.c_float(0), None, _Size(0), ctypes.c_ulonglong(0))
        self._call("SetDropoutDescriptor", dropout, self.handle, *nothing)
        self._call(
            "SetRNNDescriptor_v8",
            rnn,
            ALGORITHMS.index(algorithm),
            MODES.index(layers.mode),
            DOUBLE_BIAS,
            int(layers.bidirectional),
            int(layers.skip_input),
            number,
            math,
            DEFAULT_MATH,
            layers.input_size,
            layers.units,
            layers.hidden,
            layers.layers,
            dropout,
            ctypes.c_uint32(0),
        )
        self._call("GetRNNWeightSpaceSize", self.handle, rnn, byref(size))
        places: dict[Part, Place] = {}
        for pseudo_layer in range(layers.layers * layers.dirs):
            for linear in range(2 * layers.gates + bool(layers.projection)):
                found = self._parts(rnn, size, pseudo_layer, linear)
                for bias, (address, rows, columns) in enumerate(found):
                    if address is None:
                        continue
                    at, rest = divmod(address - SOMEWHERE, item)
                    if rest:
                        raise CudnnError(f"{address - SOMEWHERE} bytes are no elements")
                    part = Part(pseudo_layer, linear, bool(bias))
                    places[part] = Place(at, rows, columns)
        self._call("DestroyRNNDescriptor", rnn)
        self._call("DestroyDropoutDescriptor", dropout)
        return Layout(size.value // item, places)

    def _parts(
        self,
        rnn: ctypes.c_void_p,
        size: ctypes.c_size_t,
        pseudo_layer: int,
        linear: int,
    ) -> list[tuple[int | None, int, int]]:
        """Address, rows and columns of a matrix and of its bias."""
        addresses, descriptors = (_P(), _P()), (_P(), _P())
        for descriptor in descriptors:
            self._call("CreateTensorDescriptor", byref(descriptor))
        self._call(
            "GetRNNWeightParams",
            self.handle,
            rnn,
            pseudo_layer,
            size,
            _P(SOMEWHERE),
            linear,
            descriptors[0],
            byref(addresses[0]),
            descriptors[1],
            byref(addresses[1]),
        )
        found: list[tuple[int | None, int, int]] = []
        for address, descriptor in zip(addresses, descriptors, strict=True):
            kind, count = _I(), _I()
            sizes, strides = (_I * DIMENSIONS)(), (_I * DIMENSIONS)()
            self._call(
                "GetTensorNdDescriptor",
                descriptor,
                DIMENSIONS,
                byref(kind),
                byref(count),
                sizes,
                strides,
            )
            _, rows, columns = sizes
            if address.value is not None and list(strides) != [
                rows * columns,
                columns,
                1,
            ]:
                raise CudnnError(f"strides {list(strides)} of a {rows} x {columns}")
            found.append((address.value, rows, columns))
            self._call("DestroyTensorDescriptor", descriptor)
        return found
