"""TPU embeddings on any machine: configurations, optimizers, a strategy."""

from opwright_runtime._internals import TPUEmbeddingConfiguration
from opwright_runtime.embedding import optimizers
from opwright_runtime.embedding.configuration import (
    DynamicLearningRate,
    EmbeddingConfig,
    EmbeddingFeature,
    EmbeddingTable,
)
from opwright_runtime.embedding.hosts import embedding_bytes_sent
from opwright_runtime.embedding.live_tables import LiveTable, table
from opwright_runtime.embedding.lookup import embedding_lookup
from opwright_runtime.embedding.optimizers import *  # noqa: F403
from opwright_runtime.embedding.steps import (
    drop_embedding_batches,
    embedding_step,
    embedding_step_count,
)
from opwright_runtime.embedding.strategy import software_strategy

__all__ = [
    "DynamicLearningRate",
    "EmbeddingConfig",
    "EmbeddingFeature",
    "EmbeddingTable",
    "LiveTable",
    "TPUEmbeddingConfiguration",
    "drop_embedding_batches",
    "embedding_bytes_sent",
    "embedding_lookup",
    "embedding_step",
    "embedding_step_count",
    "software_strategy",
    "table",
]
__all__ += optimizers.__all__
