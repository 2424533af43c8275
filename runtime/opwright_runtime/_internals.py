"""All private names of TensorFlow that opwright uses.

A release of TensorFlow may change any of them. They are `Any` for type checkers,
because TensorFlow has no types for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf
from tensorflow.compiler.xla import xla_data_pb2
from tensorflow.core.framework import attr_value_pb2, tensor_pb2
from tensorflow.core.protobuf import saved_model_pb2, trackable_object_graph_pb2
from tensorflow.core.protobuf.tpu import optimization_parameters_pb2 as _optimization
from tensorflow.core.protobuf.tpu import tpu_embedding_configuration_pb2 as _embedding
from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.autograph.core import config as _autograph_config
from tensorflow.python.client import pywrap_tf_session as _session
from tensorflow.python.distribute import collective_all_reduce_strategy as _collective
from tensorflow.python.distribute import distribute_lib as _distribute_lib
from tensorflow.python.distribute import input_lib as _input_lib
from tensorflow.python.distribute import mirrored_strategy as _mirrored
from tensorflow.python.distribute import multi_worker_util as _multi_worker_util
from tensorflow.python.distribute import one_device_strategy as _one_device
from tensorflow.python.distribute import tpu_strategy as _tpu_strategy
from tensorflow.python.eager import backprop as _backprop
from tensorflow.python.eager import context as _context
from tensorflow.python.eager import core as _core
from tensorflow.python.eager import execute as _execute
from tensorflow.python.eager.polymorphic_function import compiler_ir as _compiler_ir
from tensorflow.python.eager.polymorphic_function import (
    concrete_function as _concrete_function,
)
from tensorflow.python.eager.polymorphic_function import (
    function_type_utils as _function_types,
)
from tensorflow.python.eager.polymorphic_function import (
    polymorphic_function as _polymorphic_function,
)
from tensorflow.python.framework import auto_control_deps_utils as _control_deps
from tensorflow.python.framework import composite_tensor as _composite_tensor
from tensorflow.python.framework import convert_to_constants as _constants
from tensorflow.python.framework import function_def_to_graph as _function_defs
from tensorflow.python.framework import kernels as _kernels
from tensorflow.python.framework import op_callbacks as _op_callbacks
from tensorflow.python.framework import op_def_library as _op_def_library
from tensorflow.python.framework import op_def_registry as _op_def_registry
from tensorflow.python.framework import ops as _ops
from tensorflow.python.grappler import tf_optimizer as _grappler
from tensorflow.python.ops import control_flow_ops as _control_flow
from tensorflow.python.ops import control_flow_util as _control_flow_util
from tensorflow.python.ops import control_flow_v2_func_graphs as _branch_graphs
from tensorflow.python.ops import gen_tpu_ops as _gen_tpu_ops
from tensorflow.python.ops import resource_variable_ops as _resource_variables
from tensorflow.python.tpu import tpu_embedding_v2 as _tpu_embedding_v2
from tensorflow.python.tpu import tpu_embedding_v2_utils as _tpu_embedding
from tensorflow.python.tpu import tpu_embedding_v3 as _tpu_embedding_v3
from tensorflow.python.tpu import tpu_replication as _tpu_replication
from tensorflow.python.types import core as _types
from tensorflow.python.util import nest as _nest

autograph_config: Any = _autograph_config
collective_all_reduce: Any = _collective
compiler_ir: Any = _compiler_ir
context: Any = _context
control_flow: Any = _control_flow
core: Any = _core
distribute_lib: Any = _distribute_lib
eager_execute: Any = _execute
function_types: Any = _function_types
gen_tpu_ops: Any = _gen_tpu_ops
input_lib: Any = _input_lib
kernel_registry: Any = _kernels
mirrored: Any = _mirrored
multi_worker_util: Any = _multi_worker_util
nest: Any = _nest
one_device: Any = _one_device
op_callbacks: Any = _op_callbacks
op_def_library: Any = _op_def_library
op_def_registry: Any = _op_def_registry
ops: Any = _ops
pywrap_tfe: Any = _pywrap_tfe
session_library: Any = _session
tpu_replication: Any = _tpu_replication
tpu_strategy: Any = _tpu_strategy

gradient_function: Any = _backprop._gradient_function
"""Tapes call it for each op, with the op's name.
`pywrap_tfe.TFE_Py_RegisterGradientFunction` replaces it."""
gradient_registry: Any = _ops.gradient_registry

flatten_function: Any = _constants.convert_variables_to_constants_v2
"""A ConcreteFunction with its variables as constants, and its calls inlined."""
function_def_to_graph_def: Any = _function_defs.function_def_to_graph_def
function_class: Any = _polymorphic_function.Function
concrete_function_class: Any = _concrete_function.ConcreteFunction
branch_or_loop_graph: Any = _branch_graphs.ControlFlowFuncGraph
optimize_graph: Any = _grappler.OptimizeGraph
"""Grappler: maps a ConfigProto and a MetaGraphDef to a GraphDef."""
in_xla_context: Any = _control_flow_util.GraphOrParentsInXlaContext
embedding_optimizer: Any = _tpu_embedding._Optimizer
tpu_embedding_class: Any = _tpu_embedding_v2.TPUEmbedding
sparse_core_embedding: Any = _tpu_embedding_v3
"""The module of TPUEmbeddingV2."""
register_read_only_op: Any = _control_deps.register_read_only_resource_op
"""Lets functions run ops of a type at the same time, if they only read a resource."""
TensorType: Any = _types.Tensor
resource_variable: Any = _resource_variables.BaseResourceVariable


def plain_variable(initial_value: Callable[[], tf.Tensor], name: str) -> object:
    """A variable on the first CPU device, which is of no strategy."""
    with _ops.device("/cpu:0"):
        return _resource_variables.ResourceVariable(
            initial_value, trainable=False, name=name
        )


handle_data: Any = _resource_variables.get_eager_safe_handle_data
"""The dtype and shape of what a handle in a graph stands for, or None."""
CompositeTensor: Any = _composite_tensor.CompositeTensor

# Every eager call of a generated class uses these names, through fast_path.py of
# `_binding`, so they have to be fast.
execute: Any = pywrap_tfe.TFE_Py_FastPathExecute
"""Runs an op at once. It raises if inputs must be converted to tensors first."""
contexts: Mapping[str, object] = vars(_context)
"""The globals of TensorFlow's module of the eager context. `[CURRENT]` is the context,
or None before its first use. `[EAGER]`: whether threads execute eagerly by default."""
CURRENT = "_context"
EAGER = "default_execution_mode"
graphs: Any = _ops._default_graph_stack
"""The graphs that this thread builds; `graphs.stack` is empty while there are none."""

# Messages. Type checkers do not see them, because modules are filled at run time.
AttrValue: Any = vars(attr_value_pb2)["AttrValue"]
CoordinatedJob: Any = vars(_collective)["coordination_config_pb2"].CoordinatedJob
ConvolutionDimensionNumbers = vars(xla_data_pb2)["ConvolutionDimensionNumbers"]
DotDimensionNumbers = vars(xla_data_pb2)["DotDimensionNumbers"]
PrecisionConfig = vars(xla_data_pb2)["PrecisionConfig"]
NameAttrList: Any = vars(attr_value_pb2)["NameAttrList"]
SavedModel: Any = vars(saved_model_pb2)["SavedModel"]
TensorProto: Any = vars(tensor_pb2)["TensorProto"]
# TensorFlow 2.18 names this message DynamicLearningRate, later versions name it
# OptimizerDynamicInput.
OptimizerDynamicInput: Any = (
    vars(_optimization).get("OptimizerDynamicInput")
    or vars(_optimization)["DynamicLearningRate"]
)
OptimizationParameters: Any = vars(_optimization)["OptimizationParameters"]
TPUEmbeddingConfiguration: Any = vars(_embedding)["TPUEmbeddingConfiguration"]
TrackableObjectGraph: Any = vars(trackable_object_graph_pb2)["TrackableObjectGraph"]
VariantTensorDataProto: Any = vars(tensor_pb2)["VariantTensorDataProto"]
