"""What is public: a name more, or less, is to be a decision."""

import importlib
import pkgutil
from pathlib import Path

import opwright
import opwright_runtime
from opwright import tpu
from opwright_runtime import api, embedding, types
from opwright_runtime.embedding import optimizers

ROOT = Path(__file__).parents[2]

# fmt: off
ERRORS = {
    "OpAttrError", "OpChangedError", "OpError", "OpExecutionError", "OpGradientError",
    "OpInputError", "OpKernelError", "OpMemoryError", "OpModeError", "OpOptionError",
    "OpRemovedError", "OpUnknownError",
}
DTYPES = {
    "TBfloat16", "TBool", "TComplex128", "TComplex64", "TFloat16", "TFloat32",
    "TFloat4E2m1fn", "TFloat64", "TFloat8E4m3b11fnuz", "TFloat8E4m3fn",
    "TFloat8E4m3fnuz", "TFloat8E5m2", "TFloat8E5m2fnuz", "TInt16", "TInt2", "TInt32",
    "TInt4", "TInt64", "TInt8", "TQint16", "TQint32", "TQint8", "TQuint16", "TQuint8",
    "TResource", "TString", "TUint16", "TUint2", "TUint32", "TUint4", "TUint64",
    "TUint8", "TVariant",
    "TComplex", "TFloating", "TIndex", "TInexact", "TIntegral", "TNumber",
    "TQuantized", "TReal", "TSigned", "TUnsigned",
}
WEIGHTS = {
    "PackedParams", "params_from_keras", "params_from_torch", "params_to_keras",
    "params_to_torch",
}

#: The public names of `opwright` besides its packages of ops.
OPWRIGHT = {
    "Op", "Operand", "Output", "Scope", "TpuCheckError", "check_tpu", "checked",
    "for_tf", "load_checked", "op_class", "op_names", "search", "typed",
    *ERRORS, *DTYPES, *WEIGHTS,
}
#: Those of `opwright.tpu` besides its ops.
TPU = {
    "DroppedIds", "DynamicLearningRate", "EmbeddingConfig", "EmbeddingFeature",
    "EmbeddingTable", "LiveTable", "TPUEmbeddingConfiguration", "TableValues",
    "JaxStack", "TorchrecState",
    "drop_embedding_batches", "embedding_bytes_sent", "embedding_lookup",
    "embedding_step", "embedding_step_count", "load_tables", "software_strategy",
    "sparsecore_dropped_ids", "sparsecore_limits", "table", "tables_from_checkpoint",
    "tables_from_jax_stacks", "tables_from_torchrec", "tables_to_jax_stacks",
    "tables_to_torchrec",
    *optimizers.__all__,  # One for each rule that TensorFlow has no class for.
}
#: The public modules of the runtime; of `gencode` generated code decides.
RUNTIME = {
    "api": OPWRIGHT - {"op_class", "op_names"},
    "checked_models": {"load_checked"},
    "convert": {
        "Comparison", "ConvertError", "Findings", "Found", "Options", "Report",
        "Verdict", "check", "to_onnx", "to_plain", "to_tflite",
    },
    "embedding": TPU,
    "errors": ERRORS,
    "gencode": None,
    "kernels": {"Kernel", "kernels", "served"},
    "libraries": {"load_library", "provider", "register_gradients"},
    "native": {
        "KERNEL_PRIORITY", "LIBRARY", "NativeLibraryError", "OptimizerTraits",
        "WeightCacheUsage", "cuda", "embedding_configuration", "embedding_optimizers",
        "forget_sparse_core_dropped_ids", "forget_sparse_core_values", "isa",
        "library", "library_path", "load", "load_if_present", "loaded", "ops",
        "sent_by_embeddings", "set_weight_cache_limit", "sparse_core_dropped_ids",
        "use_isa", "use_own_threads", "weight_cache_usage",
    },
    "rnn": WEIGHTS,
    "runs_on": {"NOT_TRIED", "RunsOn", "TARGETS", "is_known", "runs_on"},
    "cli": {"main"},
    "convert_cli": {"command", "main"},
    "search": {"Behind", "Found", "Results", "for_tf", "search"},
    "tpu_check": {
        "Argument", "Blocker", "CHIPS", "Comparison", "Compilation", "Difference",
        "OpenShapeError", "Output", "Report", "TpuCheckError", "check_tpu",
    },
    "types": {
        "AnyDType", "AnyDTypeLike", "AnyOperand", "ArrayLike", "DType", "DTYPES",
        "DTypeLike", "FunctionLike", "MessageBytes", "MessageLike", "Operand",
        "Operation", "Output", "PlainTensor", "SameAnyOperand", "SameOperand",
        "ShapeLike", "StringLike", "StringOperand", "TType", "TensorLike",
        "TensorOperand", "TensorProto", "TensorShape", "as_bool", "as_bytes",
        "as_dtype", "as_dtypes", "as_shape", "as_shapes", "message_name", "typed",
        *DTYPES,
    },
}
# fmt: on


def test_opwright_exports_equal_list() -> None:
    assert set(opwright.__all__) == OPWRIGHT
    folders = {path.parent for path in (ROOT / "opdefs").glob("*/*.yaml")}
    groups = {path.name.partition(".")[0] for path in folders}
    assert groups | OPWRIGHT | {"__version__"} <= set(dir(opwright))
    assert all(getattr(opwright, name) is not None for name in OPWRIGHT)


def test_opwright_tpu_exports_equal_list() -> None:
    assert set(tpu.__all__) - set(tpu._modules) == TPU
    assert all(getattr(tpu, name) is getattr(embedding, name) for name in TPU)


def test_runtime_exports_equal_list() -> None:
    public = {
        module.name
        for module in pkgutil.iter_modules(opwright_runtime.__path__)
        if not module.name.startswith("_")
    }
    assert public == RUNTIME.keys()
    for name, expected in RUNTIME.items():
        module = importlib.import_module(f"opwright_runtime.{name}")
        assert len(set(module.__all__)) == len(module.__all__), name
        assert all(hasattr(module, public) for public in module.__all__), name
        assert expected is None or set(module.__all__) == expected, name


def test_scope_and_dtypes_are_identical_in_all_modules() -> None:
    assert opwright.Scope is api.Scope
    assert opwright.TFloat32 is api.TFloat32 is types.TFloat32


def test_version_of_opwright_equals_runtime() -> None:
    assert opwright.__version__ == opwright_runtime.__version__
    assert [part.isdigit() for part in opwright.__version__.split(".")] == [True] * 3
