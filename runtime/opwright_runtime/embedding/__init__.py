"""TPU embeddings on any machine: configurations, optimizers, a strategy."""

from opwright_runtime.embedding.configuration import (
    DynamicLearningRate as DynamicLearningRate,
)
from opwright_runtime.embedding.configuration import EmbeddingConfig as EmbeddingConfig
from opwright_runtime.embedding.configuration import (
    EmbeddingFeature as EmbeddingFeature,
)
from opwright_runtime.embedding.configuration import EmbeddingTable as EmbeddingTable
from opwright_runtime.embedding.configuration import (
    TPUEmbeddingConfiguration as TPUEmbeddingConfiguration,
)
from opwright_runtime.embedding.optimizers import Adadelta as Adadelta
from opwright_runtime.embedding.optimizers import CenteredRMSProp as CenteredRMSProp
from opwright_runtime.embedding.optimizers import (
    FrequencyEstimator as FrequencyEstimator,
)
from opwright_runtime.embedding.optimizers import Lion as Lion
from opwright_runtime.embedding.optimizers import Momentum as Momentum
from opwright_runtime.embedding.optimizers import ProximalAdagrad as ProximalAdagrad
from opwright_runtime.embedding.optimizers import ProximalYogi as ProximalYogi
from opwright_runtime.embedding.optimizers import RMSProp as RMSProp
from opwright_runtime.embedding.strategy import (
    software_strategy as software_strategy,
)
