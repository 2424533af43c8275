"""Every mistake in an opdef gives an error: where, what came, what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from opwright_codegen import load
from support.facts import FACTS
from support.places import OPDEFS
from support.workplace import command, place, tree


@dataclass(frozen=True)
class Mistake:
    """A file, where it is wrong, and words that the message has."""

    name: str
    text: str | bytes
    where: str
    words: str
    more: tuple[str, ...] = ()

    @property
    def op(self) -> str:
        return "Bad" + "".join(word.capitalize() for word in self.name.split("_"))


def bad(name: str, body: str, where: str, words: str, *more: str) -> Mistake:
    """A mistake on the lines after `op` and `group`, which are the first two."""
    mistake = Mistake(name, "", where, words, more)
    return Mistake(name, f"op: {mistake.op}\ngroup: nn\n{body}", where, words, more)


MISTAKES = [
    # YAML itself.
    Mistake("empty", "", "1:1", "the file is empty"),
    Mistake("only_comments", "# Later.\n", "1:1", "the file is empty"),
    Mistake("nothing", "---\n", "2:1", "the op must be a mapping, not nothing"),
    Mistake("a_list", "- op\n", "1:1", "the op must be a mapping, not a list"),
    Mistake("text", "op", "1:1", "the op must be a mapping, not text 'op'"),
    Mistake("not_utf8", b"op: A\n# caf\xe9\n", "2:6", "not UTF-8: byte 0xe9"),
    Mistake("utf16", "op: A\n".encode("utf-16"), "1:1", "not UTF-8: byte 0xff"),
    Mistake("control", "op: A\n# \x07\n", "2:3", "does not take: control characters"),
    Mistake("nul", "op: A\n\0\n", "2:1", "does not take: control characters"),
    bad(
        "tab",
        "inputs:\n\t- {name: x, type: float}\n",
        "4:1",
        "a tab where spaces",
    ),
    bad(
        "unclosed",
        "inputs: [{name: x, type: float]\n",
        "3:31",
        "is not closed",
    ),
    bad(
        "indent",
        "inputs:\n  - {name: x}\n - {name: y}\n",
        "5:2",
        "check how it is indented",
    ),
    bad(
        "comma",
        "inputs:\n  - {name: x, type: float, doc: Samples, one row each.}\n",
        "4:42",
        "in 'x' (put a text with a comma in it into quotes)",
    ),
    bad("documents", "---\nop: Other\n", "3:1", "more than one document"),
    bad("alias", "attrs: &a []\noptions: *a\n", "4:10", "the alias *a; write out"),
    bad("recursive", "inputs: &a [*a]\n", "3:13", "the alias *a; write out"),
    bad("merge_key", "<<: {stateful: true}\n", "3:1", "must be text, not merge '<<'"),
    bad("deep", f"inputs: {'[' * 500}{']' * 500}\n", "3:109", "nested too deeply"),
    bad("wide", "inputs: " + "[" * 90 + "]" * 90, "3:10", "a mapping, not a list"),
    bad("tagged", "stateful: !yes true\n", "3:11", "true or false, not !yes 'true'"),
    bad(
        "python",
        "inputs: !!python/tuple []\n",
        "3:9",
        "not what is tagged python/tuple",
    ),
    # Keys.
    bad("unknown_key", "input: []\n", "3:1", "'input'", "did you mean 'inputs'?"),
    bad(
        "unknown_in_arg",
        "inputs:\n  - {name: x, type: half, typ: T}\n",
        "4:27",
        "'typ' in 'x'",
    ),
    bad("unknown_in_attr", "attrs: [{name: n, type: int, min: 1}]\n", "3:30", "'min'"),
    bad("duplicate", "stateful: true\nstateful: true\n", "4:1", "first on line 3"),
    bad(
        "duplicate_op", "op: BadDuplicateOp\n", "3:1", "'op' in the op; first on line 1"
    ),
    bad("numeric_key", "1: x\n", "3:1", "a key of the op must be text, not int '1'"),
    bad("list_key", "? [a]\n: x\n", "3:3", "a key of the op must be text, not a list"),
    Mistake("no_op", "group: nn\n", "1:1", "the op lacks the key 'op'"),
    Mistake("no_group", "op: BadNoGroup\n", "1:1", "the op lacks the key 'group'"),
    bad("no_name", "inputs: [{type: float}]\n", "3:10", "lacks the key 'name'"),
    bad(
        "no_kind", "attrs: [{name: n, default: 1}]\n", "3:9", "'n' lacks the key 'type'"
    ),
    bad("no_type", "inputs: [{name: x}]\n", "3:10", "'x' lacks the key 'type', or"),
    # Values of another kind, for every key.
    Mistake("op_number", "op: 5\ngroup: nn\n", "1:5", "text, not int '5'; put it in"),
    Mistake("op_lower", "op: matMul\ngroup: nn\n", "1:5", "'matMul'; it must be an op"),
    Mistake("group_null", "op: BadGroupNull\ngroup:\n", "2:7", "text, not nothing"),
    bad("summary_list", "summary: [a]\n", "3:10", "text, not a list"),
    bad("summary_empty", "summary: '  '\n", "3:10", "is empty; leave the key out"),
    bad("description_date", "description: 2001-01-01\n", "3:14", "not timestamp '2001"),
    bad("stateful_yes", "stateful: yes\n", "3:11", "true or false, not bool 'yes'"),
    bad("commutative_on", "commutative: on\n", "3:14", "true or false, not bool 'on'"),
    bad("aggregate_one", "aggregate: 1\n", "3:12", "true or false, not int '1'"),
    bad(
        "uninitialized_text",
        "allows_uninitialized_input: 'true'\n",
        "3:29",
        "true or false, not text 'true'",
    ),
    bad("distributed_null", "distributed_communication: ~\n", "3:28", "not nothing"),
    bad("deprecated_number", "deprecated: 7\n", "3:13", "a mapping, not int '7'"),
    bad("version_text", "deprecated: {version: old}\n", "3:23", "an integer, not text"),
    bad("version", "deprecated: {version: -1}\n", "3:23", "versions start at 0"),
    bad(
        "no_version",
        "deprecated: {explanation: x}\n",
        "3:13",
        "lacks the key 'version'",
    ),
    bad("gradient_list", "gradient_of: [MatMul]\n", "3:14", "text, not a list"),
    bad("device", "kernels: {TPU: opwright}\n", "3:11", "allowed: CPU, GPU, XLA"),
    bad("provider", "kernels: {CPU: us}\n", "3:16", "'us', which is no provider"),
    bad("inputs_mapping", "inputs: {x: float}\n", "3:9", "a list, not a mapping"),
    bad("input_text", "inputs: [x]\n", "3:10", "must be a mapping, not text 'x'"),
    bad("output_null", "outputs:\n", "3:9", "'outputs' of the op must be a list"),
    bad("attrs_text", "attrs: none\n", "3:8", "must be a list, not text 'none'"),
    bad(
        "name_no",
        "inputs: [{name: no, type: float}]\n",
        "3:17",
        "'no'; put it in quotes",
    ),
    bad(
        "name_upper", "inputs: [{name: X, type: float}]\n", "3:17", "lower-case letters"
    ),
    bad("name_dash", "attrs: [{name: a-b, type: int}]\n", "3:16", "an identifier"),
    bad("ref_yes", "inputs: [{name: x, type: float, ref: yes}]\n", "3:38", "'yes'"),
    bad("type_list", "inputs: [{name: x, type: [float]}]\n", "3:26", "not a list"),
    bad(
        "doc_number", "inputs: [{name: x, type: float, doc: 1}]\n", "3:38", "in quotes"
    ),
    bad(
        "shape_empty",
        "inputs: [{name: x, type: float, shape: ' '}]\n",
        "3:40",
        "'shape' of 'x' is empty; for no dimension write 'scalar'; for any shape leave",
    ),
    bad(
        "shape_brackets",
        "inputs: [{name: x, type: float, shape: '[]'}]\n",
        "3:41",
        "'shape' of 'x': '[]' has no meaning in a shape; write 'scalar'",
    ),
    bad(
        "shape_list",
        "inputs: [{name: x, type: float, shape: []}]\n",
        "3:40",
        "must be text, not a list; for no dimension write 'scalar'",
    ),
    bad(
        "full_type",
        "inputs: [{name: x, type: float, full_type: {type_id: x}}]\n",
        "3:54",
        "TFT",
    ),
    bad(
        "full_type_deep",
        "inputs: [{name: x, type: float, full_type: "
        + "{type_id: TFT_A, args: [" * 40
        + "{type_id: TFT_A}"
        + "]}" * 40
        + "}]\n",
        "3:836",
        "nested more than 32 deep",
    ),
    bad(
        "kind",
        "attrs: [{name: n, type: integer}]\n",
        "3:25",
        "which is no kind of attr",
    ),
    bad(
        "kind_near",
        "attrs: [{name: n, type: list(ints)}]\n",
        "3:25",
        "mean 'list(int)'?",
    ),
    bad("order_text", "attr_order: [1]\n", "3:14", "must be text, not int '1'"),
    # Numbers.
    bad(
        "octal",
        "attrs: [{name: n, type: int, minimum: 010}]\n",
        "3:39",
        "decimal digits",
    ),
    bad(
        "sexagesimal",
        "attrs: [{name: n, type: int, minimum: 1:30}]\n",
        "3:39",
        "'1:30'",
    ),
    bad(
        "hexadecimal",
        "attrs: [{name: n, type: int, minimum: 0x1F}]\n",
        "3:39",
        "decimal",
    ),
    bad(
        "underscores",
        "attrs: [{name: n, type: int, minimum: 1_000}]\n",
        "3:39",
        "decimal",
    ),
    bad(
        "minimum_float",
        "attrs: [{name: n, type: int, minimum: 1.5}]\n",
        "3:39",
        "'1.5'",
    ),
    bad(
        "minimum_true",
        "attrs: [{name: n, type: int, minimum: true}]\n",
        "3:39",
        "'true'",
    ),
    bad(
        "overflow",
        "options: [{name: n, type: int, default: 9223372036854775808}]\n",
        "3:41",
        "does not fit into 64 bits",
    ),
    bad(
        "huge",
        f"options: [{{name: n, type: int, default: -{'9' * 9999}}}]\n",
        "3:41",
        "does not fit into 64 bits",
    ),
    bad(
        "hex",
        "options: [{name: s, type: string, default: {hex: fff}}]\n",
        "3:44",
        "'fff', no hexadecimal bytes",
    ),
    bad(
        "filled",
        "options: [{name: t, type: tensor, default: {dtype: int32, shape: [2],"
        " values: [1]}}]\n",
        "3:44",
        "has 1 values for shape [2]",
    ),
    bad(
        "packed",
        "options: [{name: t, type: tensor, default: {dtype: string, shape: [1],"
        " values: [a], packed: true}}]\n",
        "3:93",
        "has no values that can be packed",
    ),
    bad(
        "complex",
        "options: [{name: t, type: tensor, default: {dtype: complex64, shape: [1],"
        " values: [[1.0]]}}]\n",
        "3:84",
        "must be [real part, imaginary part]",
    ),
    bad(
        "float_big",
        "options: [{name: f, type: float, default: 1.0e+39}]\n",
        "3:43",
        "32 bits",
    ),
    bad(
        "exponent",
        "options: [{name: f, type: float, default: 1e-5}]\n",
        "3:43",
        "1.0e-5",
    ),
    bad(
        "float_text",
        "options: [{name: f, type: float, default: x}]\n",
        "3:43",
        "a number",
    ),
    bad(
        "float_true",
        "options: [{name: f, type: float, default: yes}]\n",
        "3:43",
        "'yes'",
    ),
    # Defaults of each kind.
    bad(
        "int_text",
        "options: [{name: n, type: int, default: '1'}]\n",
        "3:41",
        "an integer",
    ),
    bad(
        "bool_no",
        "options: [{name: b, type: bool, default: no}]\n",
        "3:42",
        "not bool 'no'",
    ),
    bad(
        "string_off",
        "options: [{name: s, type: string, default: off}]\n",
        "3:44",
        "quotes",
    ),
    bad(
        "string_null",
        "options: [{name: s, type: string, default: }]\n",
        "3:44",
        "nothing",
    ),
    bad(
        "shape_text",
        "options: [{name: s, type: shape, default: any}]\n",
        "3:43",
        "'unknown'",
    ),
    bad(
        "shape_size",
        "options: [{name: s, type: shape, default: [-2]}]\n",
        "3:43",
        "-1 (unk",
    ),
    bad(
        "dtype_near",
        "attrs: [{name: t, type: type, default: flot}]\n",
        "3:40",
        "'float'?",
    ),
    bad(
        "dtype_numpy",
        "attrs: [{name: t, type: type, default: float32}]\n",
        "3:40",
        "no dtype",
    ),
    bad(
        "func_list",
        "options: [{name: f, type: func, default: [f]}]\n",
        "3:42",
        "not a list",
    ),
    bad(
        "list_one",
        "options: [{name: l, type: list(int), default: 1}]\n",
        "3:47",
        "a list",
    ),
    bad(
        "list_item",
        "options: [{name: l, type: list(int), default: [x]}]\n",
        "3:48",
        "item 1",
    ),
    bad(
        "tensor",
        "options: [{name: t, type: tensor, default: 1}]\n",
        "3:44",
        "a mapping",
    ),
    bad(
        "tensor_count",
        "options: [{name: t, type: tensor,"
        " default: {dtype: int8, shape: [2], values: [1]}}]\n",
        "3:44",
        "has 1 values for shape [2]",
    ),
    bad(
        "tensor_range",
        "options: [{name: t, type: tensor,"
        " default: {dtype: uint8, shape: [], values: [256]}}]\n",
        "3:78",
        "holds 256, which is no uint8",
    ),
    bad(
        "tensor_dtype",
        "options: [{name: t, type: tensor,"
        " default: {dtype: resource, shape: [], values: [1]}}]\n",
        "3:52",
        "no dtype of a default",
    ),
    # What holds between the parts.
    bad(
        "dangling_type", "inputs: [{name: x, type: T}]\n", "3:26", "neither a dtype nor"
    ),
    bad("near_dtype", "inputs: [{name: x, type: int}]\n", "3:26", "did you mean 'int"),
    bad(
        "dangling_count",
        "inputs: [{name: x, type: float, count: N}]\n",
        "3:40",
        "not an attr",
    ),
    bad(
        "dangling_types", "outputs: [{name: x, types: Ts}]\n", "3:28", "kind list(type)"
    ),
    bad(
        "count_kind",
        "inputs: [{name: x, type: float, count: N}]\nattrs: [{name: N, type: float}]\n",
        "3:40",
        "of kind float; it must be of kind int",
    ),
    bad(
        "types_kind",
        "inputs: [{name: x, types: T}]\nattrs: [{name: T, type: type}]\n",
        "3:27",
        "of kind type; it must be of kind list(type)",
    ),
    bad("both_types", "inputs: [{name: x, type: int8, types: T}]\n", "3:39", "both"),
    bad(
        "types_count",
        "inputs: [{name: x, types: T, count: N}]\n",
        "3:37",
        "one of them",
    ),
    bad(
        "not_allowed",
        "options: [{name: s, type: string, default: c, allowed: [a, b]}]\n",
        "3:44",
        "default of 's' is 'c', which is not allowed; allowed: 'a', 'b'",
    ),
    bad(
        "list_not_allowed",
        "options: [{name: s, type: list(string), default: [a, c], allowed: [a]}]\n",
        "3:50",
        "is 'c', which is not allowed",
    ),
    bad(
        "dtype_not_allowed",
        "attrs: [{name: t, type: type, default: half, allowed: [float]}]\n",
        "3:40",
        "is 'half', which is not allowed",
    ),
    bad(
        "allowed_int",
        "attrs: [{name: n, type: int, allowed: [1]}]\n",
        "3:39",
        "take it, not int",
    ),
    bad(
        "allowed_empty",
        "attrs: [{name: s, type: string, allowed: []}]\n",
        "3:42",
        "nothing",
    ),
    bad(
        "allowed_dtype",
        "attrs: [{name: t, type: type, allowed: [fp8]}]\n",
        "3:41",
        "no dtype",
    ),
    bad(
        "message_int",
        "attrs: [{name: n, type: int, message: a.B}]\n",
        "3:39",
        "'n' takes no 'message'; only a string without 'allowed'",
    ),
    bad(
        "message_enum",
        "attrs: [{name: s, type: string, message: a.B, allowed: [x]}]\n",
        "3:42",
        "takes no 'message'",
    ),
    bad(
        "message_name",
        "attrs: [{name: s, type: string, message: a..B}]\n",
        "3:42",
        "is 'a..B'; it must be a message's full name",
    ),
    bad(
        "tpu_only_here",
        "kernels: {CPU: opwright}\ntpu_only: it has a queue\n",
        "4:11",
        "an op that opwright brings kernels for is not 'tpu_only'",
    ),
    bad("tpu_only_empty", "tpu_only: ''\n", "3:11", "empty"),
    bad(
        "minimum_string",
        "attrs: [{name: s, type: string, minimum: 1}]\n",
        "3:42",
        "int and",
    ),
    bad(
        "minimum_of_float",
        "attrs: [{name: rate, type: float, minimum: 0}]\n",
        "3:44",
        "only int and lists do; write 'requires: [rate >= 0]' instead",
    ),
    bad(
        "minimum_list",
        "attrs: [{name: l, type: list(int), minimum: -1}]\n",
        "3:45",
        "short",
    ),
    bad(
        "below_minimum",
        "options: [{name: n, type: int, default: 0, minimum: 1}]\n",
        "3:41",
        "default of 'n' is 0, below its minimum 1",
    ),
    bad(
        "list_below_minimum",
        "options: [{name: l, type: list(int), default: [1], minimum: 2}]\n",
        "3:47",
        "has 1 values, fewer than its minimum 2",
    ),
    bad(
        "in_attrs",
        "attrs: [{name: n, type: int, default: 1}]\n",
        "3:9",
        "under 'options'",
    ),
    bad("no_default", "options: [{name: n, type: int}]\n", "3:11", "under 'attrs'"),
    bad(
        "dtype_option",
        "options: [{name: t, type: type, default: float}]\n",
        "3:11",
        "dtype",
    ),
    bad(
        "inferred_option",
        "inputs: [{name: x, type: T}]\n"
        "options: [{name: T, type: type, default: float}]\n",
        "4:11",
        "'T' is inferred from an input: it belongs under 'attrs'",
    ),
    bad(
        "same_input",
        "inputs: [{name: x, type: int8}, {name: x, type: int8}]\n",
        "3:40",
        "'x'",
    ),
    bad(
        "same_output",
        "outputs: [{name: x, type: int8}, {name: x, type: int8}]\n",
        "3:41",
        "'x'",
    ),
    bad(
        "input_and_attr",
        "inputs: [{name: x, type: int8}]\nattrs: [{name: x, type: int}]\n",
        "4:16",
        "attr 'x' has the name of an input",
    ),
    bad(
        "order_short", "attrs: [{name: n, type: int}]\nattr_order: []\n", "4:13", "'n'"
    ),
    bad("order_more", "attr_order: [n]\n", "3:13", "'n'"),
    bad(
        "order_twice",
        "attrs: [{name: n, type: int}]\nattr_order: [n, n]\n",
        "4:13",
        "must name every attr and option once; check 'n'",
    ),
    bad("gradient_of", "gradient_of: MatMull\n", "3:14", "has no opdef"),
    bad(
        "replacement",
        "deprecated: {version: 1, replacement: Gone}\n",
        "3:39",
        "no opdef",
    ),
    # Python names.
    bad(
        "clash_argument",
        "inputs: [{name: in, type: int8}]\nattrs: [{name: in_, type: int}]\n",
        "4:16",
        "input or attr 'in_' would be named 'in_' in Python, as the input or attr 'in'",
    ),
    bad(
        "clash_output",
        "outputs: [{name: op, type: int8}, {name: op_, type: int8}]\n",
        "3:42",
        "output 'op_' would be named 'op_'",
    ),
    bad(
        "clash_option",
        "options:\n"
        "  - {name: seed, type: int, default: 0}\n"
        "  - {name: with_seed, type: int, default: 0}\n",
        "5:12",
        "'with_seed' would be named 'with_seed' in Python, as the setter of 'seed'",
    ),
    bad(
        "clash_variable",
        "inputs: [{name: x, type: t}, {name: y, type: T}]\n"
        "attrs: [{name: t, type: type}, {name: T, type: type}]\n",
        "4:39",
        "type variable 'T' would be named 'T' in Python, as the type variable 't'",
    ),
    bad(
        "clash_class",
        "attrs: [{name: BadClashClass, type: int}]\n",
        "3:16",
        "as the class 'BadClashClass' is",
    ),
]
#: Mistakes that only files and folders have: what to place, and what is said.
Placed = Callable[[Path], None]
PLACED: list[tuple[str, Placed, str, str]] = [
    (
        "named otherwise",
        lambda root: void(place(root, "nn", "Other", "op: Name\ngroup: nn\n")),
        "nn/Other.yaml:1:5: Other:",
        "the file of op 'Name' must be named Name.yaml",
    ),
    (
        "in another group's folder",
        lambda root: void(place(root, "nn", "Astray", "op: Astray\ngroup: math\n")),
        "nn/Astray.yaml:2:8: Astray:",
        "group is 'math', but the file lies in 'nn'",
    ),
    (
        "two files of one op",
        lambda root: [void(place(root, group, "Twice")) for group in ("data", "nn")],
        "nn/Twice.yaml:1:1: Twice:",
        "data/Twice.yaml defines this op too; one op, one file",
    ),
    (
        "functions of one name",
        lambda root: [
            void(place(root, "nn", name)) for name in ("TFRecord", "TfRecord")
        ],
        "nn/TfRecord.yaml:1:1: TfRecord:",
        "its function would be named 'tf_record', as 'TFRecord'",
    ),
    (
        "classes of one name",
        lambda root: [void(place(root, "nn", name)) for name in ("A>Op", "AOp")],
        "nn/AOp.yaml:1:1: AOp:",
        "its class would be named 'AOp', as 'A>Op'",
    ),
    (
        "an op named as a subgroup",
        lambda root: [
            void(place(root, "core", "Sub")),
            void(place(root, "core.sub", "B")),
        ],
        "core/Sub.yaml:1:1: Sub:",
        "its function would be named 'sub', as the group 'core.sub' is",
    ),
    (
        "a group named as a keyword",
        lambda root: void(place(root, "import", "Lost")),
        "import:1:1:",
        "the group 'import' would be a package named 'import'",
    ),
    (
        "a group in capitals",
        lambda root: void(place(root, "NN", "Loud")),
        "NN/Loud.yaml:2:8: Loud:",
        "it must be a package's name in lower case",
    ),
    (
        "not in a group",
        lambda root: void((root / "High.yaml").write_text("op: High\n")),
        "High.yaml:1:1:",
        "an opdef is named <group>/<OP_NAME>.yaml",
    ),
    (
        "in a folder of folders",
        lambda root: void(place(root / "data", "sub", "Deep")),
        "data/sub/Deep.yaml:1:1:",
        "an opdef is named <group>/<OP_NAME>.yaml",
    ),
    (
        ".yml",
        lambda root: void(place(root, "nn", "Short").rename(root / "nn" / "Short.yml")),
        "nn/Short.yml:1:1:",
        "an opdef is named <group>/<OP_NAME>.yaml",
    ),
    (
        ".YAML",
        lambda root: void(place(root, "nn", "Cry").rename(root / "nn" / "Cry.YAML")),
        "nn/Cry.YAML:1:1:",
        "an opdef is named <group>/<OP_NAME>.yaml",
    ),
    (
        "a folder instead of a file",
        lambda root: (root / "nn" / "Folder.yaml").mkdir(parents=True),
        "nn/Folder.yaml:1:1: Folder:",
        "cannot be read: Is a directory",
    ),
    (
        "a link to nowhere",
        lambda root: link(root / "nn" / "Link.yaml"),
        "nn/Link.yaml:1:1: Link:",
        "cannot be read: No such file or directory",
    ),
]


def void(_: object) -> None:
    """For what is done for its effect."""


def link(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to("nowhere")


def test_mistakes_table_has_each_op_once() -> None:
    assert len(MISTAKES) + len(PLACED) >= 100
    assert len({mistake.op for mistake in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_load_text_mistake_is_one_problem(mistake: Mistake, tmp_path: Path) -> None:
    path = place(tmp_path, "nn", mistake.op, mistake.text or b"\n")
    if not mistake.text:
        path.write_bytes(b"")
    ops, problems = load.load_all(tmp_path)
    assert ops == []
    assert [str(problem) for problem in problems] == [
        f"{path}:{mistake.where}: {mistake.op}: {problems[0].message}"
    ]
    for words in (mistake.words, *mistake.more):
        assert words in problems[0].message
    assert "\n" not in problems[0].message
    assert len(problems[0].message) < 400


def test_load_all_deep_nesting_is_one_problem(tmp_path: Path) -> None:
    """Some stop where lists are nested a thousand deep, before they are composed."""
    place(tmp_path, "nn", "Deep", f"op: Deep\ninputs: {'[' * 5000}{']' * 5000}\n")
    ops, (problem,) = load.load_all(tmp_path)
    assert ops == []
    assert "nested too deeply" in str(problem)
    assert problem.line == 2


@pytest.mark.parametrize(
    ("put", "where", "words"),
    [pytest.param(*rest, id=name) for name, *rest in PLACED],
)
def test_check_tree_misplaced_file_is_a_problem(
    put: Placed, where: str, words: str, tmp_path: Path
) -> None:
    put(tmp_path)
    _, problems = load.load_all(tmp_path)
    told = [
        text for text in map(str, problems) if text.startswith(f"{tmp_path}/{where}")
    ]
    assert len(told) == 1, problems
    assert words in told[0]


@pytest.fixture(scope="module")
def all_of_them(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every mistake of the tables in one folder, among opdefs that have none."""
    root = tmp_path_factory.mktemp("all") / "opdefs"
    for mistake in MISTAKES:
        place(root, "nn", mistake.op, mistake.text or b"\n")
    for _, put, _, _ in PLACED:
        put(root)
    place(root, "nn", "Good")
    return root


@pytest.mark.rotating
@pytest.mark.parametrize("arguments", [["lint"], ["generate"], ["generate", "--check"]])
def test_lint_reports_all_mistakes_in_one_run(
    arguments: list[str], all_of_them: Path
) -> None:
    output = ["--output", "out"] if "generate" in arguments else []
    home = all_of_them.parent
    done = command(*arguments, "--opdefs", "opdefs", *output, cwd=home)
    assert done.returncode == 1
    told = done.stderr.splitlines()
    for mistake in MISTAKES:
        start = f"opdefs/nn/{mistake.op}.yaml:{mistake.where}: {mistake.op}: "
        assert any(line.startswith(start) and mistake.words in line for line in told)
    for _, _, where, words in PLACED:
        start = f"opdefs/{where}"
        assert any(line.startswith(start) and words in line for line in told), where
    end = "" if arguments == ["lint"] else "; nothing was written"
    assert told[-1].endswith(f" {len(told) - 1} problems{end}")
    assert "Good" not in done.stderr
    assert done.stdout == ""
    assert [path.name for path in home.iterdir()] == ["opdefs"]


def test_load_all_reference_to_later_op_is_no_problem(tmp_path: Path) -> None:
    """References are to opdefs, not to those that happen to be read first."""
    place(tmp_path, "nn", "A", "op: A\ngroup: nn\ngradient_of: B\n")
    place(tmp_path, "nn", "B")
    assert load.load_all(tmp_path)[1] == []


def test_load_all_byte_order_mark_and_crlf_are_accepted(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbfop: A\r\ngroup: nn\r\nsummary: Text.\r\n"
    place(tmp_path, "nn", "A", text)
    ops, problems = load.load_all(tmp_path)
    assert problems == []
    assert ops[0].summary == "Text."


def test_check_tree_empty_folder_is_a_problem(tmp_path: Path) -> None:
    done = command("generate", "--opdefs", "missing", "--output", "out", cwd=tmp_path)
    assert done.returncode == 1
    assert "missing:1:1: no such folder" in done.stderr
    assert tree(tmp_path) == {}


@pytest.mark.rotating
@pytest.mark.slow  # It takes seconds.
def test_committed_opdefs_have_no_mistakes() -> None:
    done = command("lint")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.endswith(f"opdefs: {FACTS['ops']} ops, no problems\n")
    assert OPDEFS.is_dir()


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("summary: a: b", "3:11", "a second ': ' in a row"),
        ("summary: @x", "3:10", "@, which nothing begins with"),
        ("\tsummary: x", "3:1", "a tab where spaces"),
        ("summary: [a", "4:1", "a bracket begins is not closed"),
        ("summary: 'a", "4:1", "a text in quotes that is not closed"),
        ('summary: "\\q"', "3:11", "a backslash in double quotes"),
        ("summary\nx: 1", "4:1", "a row without a key"),
        ("---\nop: Y", "3:1", "more than one document"),
        ("summary: |x\n a", "3:11", "belongs into the next row"),
        ("summary: &", "3:11", "begins with * or &"),
        ("inputs:\n - a\n- b", "5:1", "check how it is indented"),
        ("inputs: [{name: x, type: float64}]", "3:26", "did you mean 'double'?"),
        ("inputs: [{name: x, type: tf.float32}]", "3:26", "did you mean 'float'?"),
        ("options: [{name: t, type: type, default: DT_HALF}]", "3:42", "'half'?"),
        ("options: [{name: t, type: type, default: TInt32}]", "3:42", "'int32'?"),
    ],
)
def test_load_text_yaml_mistake_names_written_text(
    text: str, where: str, words: str
) -> None:
    content = f"op: X\ngroup: nn\n{text}\n".encode()
    (problem,) = load.load_text(content, Path("nn/X.yaml"))[1]
    assert f"{problem.line}:{problem.column}" == where
    assert words in problem.message
    assert "while" not in problem.message and "expected" not in problem.message


def test_lint_of_a_folder_that_is_not_there_says_so(tmp_path: Path) -> None:
    done = command("lint", "--opdefs", "opdef", cwd=tmp_path)
    assert done.returncode == 1
    assert "opdef:1:1: no such folder" in done.stderr
    (tmp_path / "opdef").mkdir()
    assert (
        "holds no opdefs" in command("lint", "--opdefs", "opdef", cwd=tmp_path).stderr
    )


def test_lint_of_a_folder_without_its_option_names_the_option(tmp_path: Path) -> None:
    place(tmp_path / "my_opdefs", "nn", "Good")
    done = command("lint", "my_opdefs", cwd=tmp_path)
    assert done.returncode == 2
    words = "unrecognized arguments: my_opdefs; write --opdefs my_opdefs for the folder"
    assert words in done.stderr
    assert "write" not in command("lint", "other", cwd=tmp_path).stderr


@pytest.mark.parametrize(
    ("example", "words"),
    [
        (">>> good(1).numpy(.tolist()", "in 'good(1).numpy(.tolist()': invalid syntax"),
        (">>> x = (1,\n  2)", "'(' was never closed"),
        (">>>good(1)", "must start with '>>> '"),
        (">>> good(1)\n1", None),
        (">>> for x in 1, 2:\n  ...     print(x)\n  1\n  2", None),
    ],
)
def test_lint_of_an_example_that_is_no_python_names_the_row(
    example: str, words: str | None, tmp_path: Path
) -> None:
    text = f"op: Good\ngroup: nn\nsummary: Is good.\nexample: |\n  {example}\n"
    place(tmp_path, "nn", "Good", text.replace("\n1\n", "\n  1\n"))
    done = command("lint", "--opdefs", ".", cwd=tmp_path)
    assert done.returncode == (words is not None), done.stderr
    assert words is None or words in done.stderr
