"""The dtypes of TPUs."""

from __future__ import annotations

from collections.abc import Iterable

#: Names of the dtypes of the kernels that TensorFlow registers for TPUs: `kTpuAllTypes`
#: in its tpu_defs.h. XLA has kernels of complex128 too, but only for other devices.
TPU_DTYPES = frozenset(
    [
        "bool",
        "bfloat16",
        "float16",
        "float32",
        "float64",
        "complex64",
        "qint8",
        "qint32",
        "quint8",
        "int4",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint4",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float8_e4m3b11fnuz",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
    ]
)

# XLA's kernels have these where they need no values of them.
_WITHOUT_VALUES = frozenset(["string", "resource", "variant"])


def missing_on_tpus(dtypes: Iterable[str]) -> tuple[str, ...]:
    """Those of the names of dtypes that no kernel for TPUs has, each once."""
    known = TPU_DTYPES | _WITHOUT_VALUES
    return tuple(dict.fromkeys(name for name in dtypes if name not in known))
