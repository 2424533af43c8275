"""The functions of the runtime that conditions of calls use in generated code."""

from __future__ import annotations

from typing import Final

from opwright_notation.conditions import CROSSES, HOLDS, MEMORY, TABLE, THREADS

#: The runtime's function for each property and function of conditions. Those that are
#: builtins of Python are missing.
OF_FUNCTION: Final = {
    "rank": "rank_of",
    "elements": "elements_of",
    "shape": "sizes_of",
    "handles": "elements_of",
    "value": "value_of",
    "contents": "contents_of",
    "last": "last_of",
    "least": "least_of",
    "most": "most_of",
    "finite": "all_finite",
    "rising": "is_rising",
    "permutation": "is_permutation",
    "batched": "is_batched",
    "distinct": "are_distinct",
    "dtype": "dtype_of",
    "held": "known_held_of",
    "matrix": "matrix_of",
    "positives": "positives_of",
    "ranks": "ranks_of",
    "products": "products_of",
    "extents": "extents_of",
    "nan_free": "is_nan_free",
    "named": "are_named",
    "slices": "are_slices",
    "drawable": "are_drawable",
    "uncut": "are_uncut",
    "stackable": "are_stackable",
    "invertible": "is_invertible",
    "removable": "is_removable",
    "shards": "shards_of",
    "spans": "are_spans",
    "results": "results_of",
    "parameters": "parameters_of",
    HOLDS: "are_held",
    TABLE: "is_table",
    MEMORY: "has_room",
    THREADS: "can_start",
    "steps": "steps_of",
    "padded": "padded_of",
    "banded": "banded_of",
    "terms": "terms_of",
    "nested": "are_nested",
    "pairs": "are_pairs",
    "single": "is_single",
    "importable": "are_importable",
    "joins": "are_joined",
    "filled": "is_filled",
    "divides": "is_divided",
    "convolves": "is_convolved",
    "subscripts": "are_subscripts",
    "contracts": "is_contracted",
    "precise": "is_precise",
    "labels": "are_labeled",
    "writable": "is_writable",
    "einsum": "einsum_of",
    "batches": "batches_of",
    "indexed": "indexed_of",
    "reduced": "reduced_of",
    CROSSES: "crosses_of",
    "remove": "removed",
    "broadcast": "broadcast_of",
    "prod": "product_of",
    "extent": "extent_of",
}
#: Kinds of attrs whose values need a function of the runtime to be compared.
OF_ATTR: Final = {
    "string": "text_of",
    "type": "dtype_name",
    "shape": "dims_of",
    "list(shape)": "shapes_of",
}
#: The tensors of a list.
TENSORS_OF: Final = "tensors_of"
#: The dtype that inputs share. If no input is a tensor, the first is an error, and the
#: second is "".
DTYPE_OF: Final = "dtype_of"
SOME_DTYPE_OF: Final = "some_dtype_of"
#: Whether several tensors have these ranks.
HAVE_RANKS: Final = "have_ranks"
#: All functions of the runtime that conditions call.
HELPERS: Final = frozenset(
    {*OF_FUNCTION.values(), *OF_ATTR.values()}
    | {TENSORS_OF, DTYPE_OF, SOME_DTYPE_OF, HAVE_RANKS}
)

#: The builtins that conditions use, which a parameter would hide.
BUILTINS: Final = frozenset({"all", "len", "max", "min", "sum", "zip"})
