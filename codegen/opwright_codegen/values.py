"""Reads values of attrs from YAML: dtypes, texts, functions, shapes, tensors."""

from __future__ import annotations

import math
from typing import Final, cast

import yaml

from opwright_codegen.model import (
    FuncAttr,
    FuncValue,
    Scalar,
    ShapeValue,
    TensorItem,
    TensorValue,
    Value,
)
from opwright_codegen.nodes import Mapping, Read, Reader, repr_short
from opwright_codegen.types import (
    DTYPES,
    KINDS,
    TENSOR_DTYPES,
    AttrKind,
    DTypeName,
    dtype_meant,
)

#: The integers that a tensor-valued default may have, by dtype.
_RANGES: Final = {
    f"int{bits}": range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)
} | {f"uint{bits}": range(2**bits) for bits in (8, 16, 32, 64)}


class ValueReader(Reader):
    """Reads values by the kind of their attr."""

    def value(self, node: yaml.Node, what: str, kind: AttrKind) -> Value | None:
        one = self.element_reader(kind.element)
        if not kind.is_list:
            return one(node, what)
        many: Read[tuple[Scalar, ...]] = self.many(one)
        return many(node, what)

    def element_reader(self, kind: str) -> Read[Scalar]:
        def read_dtype(node: yaml.Node, what: str) -> DTypeName | None:
            name = self.dtype(node, what)
            return None if name is None else DTypeName(name)

        readers: dict[str, Read[Scalar]] = {
            "int": self.integer,
            "float": self.single,
            "bool": self.boolean,
            "string": self.any_text,
            "type": read_dtype,
            "shape": self.shape_value,
            "tensor": self.tensor_value,
            "func": self.func_value,
        }
        return readers[kind]

    def dtype(self, node: yaml.Node, what: str) -> str | None:
        return self.one_of(DTYPES, "dtype", dtype_meant)(node, what)

    def any_text(self, node: yaml.Node, what: str) -> str | bytes | None:
        """Reads a text, or `{hex: ff00}` for bytes that are not UTF-8."""
        if not isinstance(node, yaml.MappingNode):
            return self.text(node, what)
        table = Mapping(self, node, what)
        digits = table.take("hex", self.text, needed=True)
        table.close()
        try:
            return None if digits is None else bytes.fromhex(digits)
        except ValueError:
            self.problem(
                node, f"{what} is {repr_short(digits or '')}, no hexadecimal bytes"
            )
            return None

    def func_value(self, node: yaml.Node, what: str) -> FuncValue | None:
        """Reads a function: its name, or a mapping with its name and attrs."""
        if not isinstance(node, yaml.MappingNode):
            name = self.text(node, what)
            return None if name is None else FuncValue(name)
        table = Mapping(self, node, what)
        name = table.take("name", self.text, needed=True)
        attrs = table.take("attrs", self.many(self.func_attr), needed=True)
        table.close()
        return FuncValue(name or "", attrs or ())

    def func_attr(self, node: yaml.Node, what: str) -> FuncAttr | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        name = table.take("name", self.text, needed=True)
        kind_name = table.take("type", self.one_of(KINDS, "kind of attr"), needed=True)
        if name is None or kind_name is None:
            return None
        kind = AttrKind(kind_name)
        # mypy joins the members of the union to object.
        value = cast(
            "Value | None",
            table.take("value", lambda n, w: self.value(n, w, kind), needed=True),
        )
        table.close()
        return None if value is None else FuncAttr(name, kind, value)

    def shape_value(self, node: yaml.Node, what: str) -> ShapeValue | None:
        if isinstance(node, yaml.ScalarNode):
            if node.value == "unknown":
                return ShapeValue(None)
            self.wrong(node, what, "a list of sizes, or 'unknown'")
            return None
        found = self.many(self.dim)(node, what)
        if found is None:
            return None
        dims = tuple(size for size, _ in found)
        if any(size < -1 for size in dims):
            self.problem(
                node, f"{what} is {list(dims)}; sizes are -1 (unknown) or more"
            )
        names = tuple(name for _, name in found)
        return ShapeValue(dims, names if any(names) else ())

    def dim(self, node: yaml.Node, what: str) -> tuple[int, str] | None:
        """Reads a dimension: its size, or a mapping with its size and name."""
        if not isinstance(node, yaml.MappingNode):
            size = self.integer(node, what)
            return None if size is None else (size, "")
        table = Mapping(self, node, what)
        size = table.take("size", self.integer, needed=True)
        name = table.take("name", self.text, needed=True)
        table.close()
        return None if size is None else (size, name or "")

    def tensor_value(self, node: yaml.Node, what: str) -> TensorValue | None:
        table = self.mapping(node, what)
        if table is None:
            return None
        dtype = table.take(
            "dtype",
            self.one_of(TENSOR_DTYPES, "dtype of a default", dtype_meant),
            needed=True,
        )
        shape = table.take("shape", self.many(self.integer), needed=True)
        items: Read[tuple[TensorItem, ...]] = self.many(self.item_reader(dtype))
        values = table.take("values", items, needed=True)
        filled = bool(table.take("filled", self.boolean))
        packed = bool(table.take("packed", self.boolean))
        table.close()
        if dtype is None or shape is None or values is None:
            return None
        tensor = TensorValue(DTypeName(dtype), shape, values, packed)
        self.check_tensor(table, what, tensor, filled=filled)
        return tensor

    def item_reader(self, dtype: str | None) -> Read[TensorItem]:
        """The reader of one value of a tensor of `dtype`."""
        readers: dict[str, Read[TensorItem]] = {
            "float": self.single,
            "double": self.number,
            "half": self.number,
            "bfloat16": self.number,
            "complex64": self.complex_number,
            "complex128": self.complex_number,
            "bool": self.boolean,
            "string": self.any_text,
            "uint64": lambda n, w: self.integer(n, w, _RANGES["uint64"]),
        }
        return readers.get(dtype, self.integer) if dtype else nothing

    def check_tensor(
        self, table: Mapping, what: str, tensor: TensorValue, *, filled: bool
    ) -> None:
        size = math.prod(tensor.shape)
        fits = len(tensor.values) < size if filled else len(tensor.values) == size
        if any(size < 0 for size in tensor.shape) or not fits:
            hint = "; 'filled' is for fewer" if filled else ""
            message = f"{len(tensor.values)} values for shape {list(tensor.shape)}"
            self.problem(table.node, f"{what} has {message}{hint}")
        if tensor.packed and (tensor.dtype == "string" or not tensor.values):
            self.problem(table.at("packed"), f"{what} has no values that can be packed")
        for value in tensor.values if tensor.dtype in _RANGES else ():
            if value not in _RANGES[tensor.dtype]:
                message = f"{what} holds {value!r}, which is no {tensor.dtype}"
                self.problem(table.at("values"), message)

    def complex_number(self, node: yaml.Node, what: str) -> complex | None:
        """`[real, imaginary]`."""
        parts = self.many(self.number)(node, what)
        if parts is None:
            return None
        if len(parts) != 2:
            self.problem(node, f"{what} must be [real part, imaginary part]")
            return 0j
        return complex(*parts)


def nothing(node: yaml.Node, what: str) -> None:
    """Accepts any node, if another problem of its mapping is already reported."""
