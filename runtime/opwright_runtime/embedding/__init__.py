"""TPU embeddings on any machine: configurations, optimizers, a strategy."""

from opwright_runtime.embedding.configuration import (
    DynamicLearningRate,
    EmbeddingConfig,
    EmbeddingFeature,
    EmbeddingTable,
)
from opwright_runtime.embedding.optimizers import (
    Adadelta,
    CenteredRMSProp,
    FrequencyEstimator,
    Lion,
    Momentum,
    ProximalAdagrad,
    ProximalYogi,
    RMSProp,
)
from opwright_runtime.embedding.strategy import software_strategy
from opwright_runtime.internals import TPUEmbeddingConfiguration

__all__ = [
    "Adadelta",
    "CenteredRMSProp",
    "DynamicLearningRate",
    "EmbeddingConfig",
    "EmbeddingFeature",
    "EmbeddingTable",
    "FrequencyEstimator",
    "Lion",
    "Momentum",
    "ProximalAdagrad",
    "ProximalYogi",
    "RMSProp",
    "TPUEmbeddingConfiguration",
    "software_strategy",
]
