"""TPU embeddings on any machine: configurations, optimizers, a strategy."""

from typing import TYPE_CHECKING

# Type checkers treat names that are imported `as` themselves, or by `*`, as public.
# mypy does not read the sum of lists below.
from opwright_runtime._internals import (
    TPUEmbeddingConfiguration as TPUEmbeddingConfiguration,
)
from opwright_runtime.embedding import optimizers
from opwright_runtime.embedding.checkpoint_tables import (
    tables_from_checkpoint as tables_from_checkpoint,
)
from opwright_runtime.embedding.configuration import (
    DynamicLearningRate as DynamicLearningRate,
)
from opwright_runtime.embedding.configuration import EmbeddingConfig as EmbeddingConfig
from opwright_runtime.embedding.configuration import (
    EmbeddingFeature as EmbeddingFeature,
)
from opwright_runtime.embedding.configuration import EmbeddingTable as EmbeddingTable
from opwright_runtime.embedding.hosts import (
    embedding_bytes_sent as embedding_bytes_sent,
)
from opwright_runtime.embedding.jax_stacks import JaxStack as JaxStack
from opwright_runtime.embedding.jax_stacks import (
    tables_from_jax_stacks as tables_from_jax_stacks,
)
from opwright_runtime.embedding.jax_stacks import (
    tables_to_jax_stacks as tables_to_jax_stacks,
)
from opwright_runtime.embedding.live_tables import LiveTable as LiveTable
from opwright_runtime.embedding.live_tables import table as table
from opwright_runtime.embedding.lookup import embedding_lookup as embedding_lookup
from opwright_runtime.embedding.optimizers import *  # noqa: F403
from opwright_runtime.embedding.sparse_core_limits import DroppedIds as DroppedIds
from opwright_runtime.embedding.sparse_core_limits import (
    sparsecore_dropped_ids as sparsecore_dropped_ids,
)
from opwright_runtime.embedding.sparse_core_limits import (
    sparsecore_limits as sparsecore_limits,
)
from opwright_runtime.embedding.steps import (
    drop_embedding_batches as drop_embedding_batches,
)
from opwright_runtime.embedding.steps import embedding_step as embedding_step
from opwright_runtime.embedding.steps import (
    embedding_step_count as embedding_step_count,
)
from opwright_runtime.embedding.strategy import software_strategy as software_strategy
from opwright_runtime.embedding.table_loading import load_tables as load_tables
from opwright_runtime.embedding.table_values import TableValues as TableValues
from opwright_runtime.embedding.torchrec_tables import TorchrecState as TorchrecState
from opwright_runtime.embedding.torchrec_tables import (
    tables_from_torchrec as tables_from_torchrec,
)
from opwright_runtime.embedding.torchrec_tables import (
    tables_to_torchrec as tables_to_torchrec,
)

if not TYPE_CHECKING:
    __all__ = [
        "DroppedIds",
        "DynamicLearningRate",
        "EmbeddingConfig",
        "EmbeddingFeature",
        "EmbeddingTable",
        "JaxStack",
        "LiveTable",
        "TPUEmbeddingConfiguration",
        "TableValues",
        "TorchrecState",
        "drop_embedding_batches",
        "embedding_bytes_sent",
        "embedding_lookup",
        "embedding_step",
        "embedding_step_count",
        "load_tables",
        "software_strategy",
        "sparsecore_dropped_ids",
        "sparsecore_limits",
        "table",
        "tables_from_checkpoint",
        "tables_from_jax_stacks",
        "tables_from_torchrec",
        "tables_to_jax_stacks",
        "tables_to_torchrec",
        *optimizers.__all__,
    ]
