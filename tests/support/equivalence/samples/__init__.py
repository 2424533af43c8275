"""Programs that together call most ops TensorFlow has a CPU kernel for.

Left out are ops that end the process, block for ever, fail with any arguments, or need
another device, process or machine.
"""

from functools import cache

from support.equivalence.samples import (
    arrays,
    compiled,
    control,
    datasets,
    elementwise,
    files,
    images,
    linear_algebra,
    lists,
    neural,
    quantized,
    random,
    recurrent,
    reductions,
    resources,
    sparse,
    strings,
    variables,
)
from support.equivalence.samples.kit import Sample

TABLES = (
    arrays,
    compiled,
    control,
    datasets,
    elementwise,
    files,
    images,
    linear_algebra,
    lists,
    neural,
    quantized,
    random,
    recurrent,
    reductions,
    resources,
    sparse,
    strings,
    variables,
)


def every_sample() -> list[Sample]:
    return [sample for table in TABLES for sample in table.SAMPLES]


def by_table(runs: list[tuple[str, str]]) -> dict[str, list[tuple[str, str]]]:
    """Names of samples, each with a mode, by the table that the sample is in."""
    tables = {
        sample.name: table.__name__.rpartition(".")[2]
        for table in TABLES
        for sample in table.SAMPLES
    }
    found: dict[str, list[tuple[str, str]]] = {}
    for run in runs:
        found.setdefault(tables[run[0]], []).append(run)
    return found


@cache
def _by_name() -> dict[str, Sample]:
    samples = {sample.name: sample for sample in every_sample()}
    if len(samples) < len(every_sample()):
        raise ValueError("two samples have the same name")
    return samples


def sample_named(name: str) -> Sample:
    return _by_name()[name]


# The ops with a CPU kernel that no sample calls, by what keeps them out.
LEFT_OUT = {
    "ends the process": "Abort XlaReplicaId",
    "ends the process after a failure": (
        "CollectiveAllToAllV3 CollectiveInitializeCommunicator CollectiveReduceV3"
    ),
    "leaves the process's collectives aborted": "CollectiveReduceScatterV2",
    "waits for another device": (
        "CollectiveBcastRecv CollectiveBcastRecvV2 XlaRecv XlaSend"
    ),
    "needs a server": (
        "DataServiceDataset DataServiceDatasetV2 DataServiceDatasetV3"
        " DataServiceDatasetV4 DeleteRpcFutureResource DistributedSave RegisterDataset"
        " RegisterDatasetV2 RpcCall RpcCheckStatus RpcClient RpcGetValue RpcServer"
        " RpcServerRegister RpcServerStart"
    ),
    "reads files that no op writes, or at paths that only their writer knows": (
        "DecodeJxl ExperimentalLMDBDataset LMDBDataset LMDBReader SnapshotChunkDataset"
        " SnapshotDatasetReader SnapshotNestedDatasetReader"
    ),
    "reads what an earlier run of the same session left or was fed": (
        "DeleteSessionTensor GetSessionTensor Placeholder PlaceholderV2"
    ),
    "needs memory that a GPU has pinned": "CheckPinned",
    "no file system implements it": "FileSystemSetConfiguration",
    "its kernel asks for an input or attr that the op does not have": (
        "AnonymousRandomSeedGenerator DeleteRandomSeedGenerator"
        " ExperimentalAutoShardDataset ExperimentalRandomDataset"
        " FixedLengthRecordReader MutableDenseHashTable TileGrad TopK XlaIf"
    ),
    "its kernel takes no handle that TensorFlow makes": (
        "DeleteMemoryCache DeleteSeedGenerator"
    ),
    "its kernel takes a filter only from oneDNN's rewriting of graphs": (
        "QuantizedConv2DAndRelu QuantizedConv2DAndReluAndRequantize"
        " QuantizedConv2DAndRequantize QuantizedConv2DPerChannel"
        " QuantizedConv2DWithBias QuantizedConv2DWithBiasAndRelu"
        " QuantizedConv2DWithBiasAndReluAndRequantize"
        " QuantizedConv2DWithBiasAndRequantize"
        " QuantizedConv2DWithBiasSignedSumAndReluAndRequantize"
        " QuantizedConv2DWithBiasSumAndRelu"
        " QuantizedConv2DWithBiasSumAndReluAndRequantize QuantizedDepthwiseConv2D"
        " QuantizedDepthwiseConv2DWithBias QuantizedDepthwiseConv2DWithBiasAndRelu"
        " QuantizedDepthwiseConv2DWithBiasAndReluAndRequantize"
    ),
    "its kernel is opwright's and has no peer: tests have references": (
        "CollateTPUEmbeddingMemory ComputeDedupDataSize ComputeDedupDataSizeV2"
        " ComputeDedupDataTupleMask ComputeDedupDataTupleMaskV2"
        " ConfigureDistributedTPU ConfigureTPUEmbedding"
        " ConfigureTPUEmbeddingHost ConfigureTPUEmbeddingMemory"
        " ConnectTPUEmbeddingHosts ConvertToCooTensor"
        " ConvertToListOfSparseCoreCooTensors"
        " ConvertToSparseCoreCsrWrappedCooTensor"
        " DynamicEnqueueTPUEmbeddingArbitraryTensorBatch"
        " DynamicEnqueueTPUEmbeddingRaggedTensorBatch"
        " EnqueueTPUEmbeddingArbitraryTensorBatch EnqueueTPUEmbeddingBatch"
        " EnqueueTPUEmbeddingIntegerBatch EnqueueTPUEmbeddingRaggedTensorBatch"
        " EnqueueTPUEmbeddingSparseBatch EnqueueTPUEmbeddingSparseTensorBatch"
        " ExecuteTPUEmbeddingPartitioner FinalizeTPUEmbedding"
        " FinalizeTPUEmbeddingV2 GetMinibatchSplitsWithPhysicalReplica"
        " GetMinibatchesInCsrWithPhysicalReplica"
        " GetStatsFromListOfSparseCoreCooTensors"
        " IsTPUEmbeddingInitialized LoadAllTPUEmbeddingParameters"
        " LoadTPUEmbeddingADAMParameters LoadTPUEmbeddingAdadeltaParameters"
        " LoadTPUEmbeddingAdagradMomentumParameters"
        " LoadTPUEmbeddingAdagradParameters"
        " LoadTPUEmbeddingCenteredRMSPropParameters"
        " LoadTPUEmbeddingFTRLParameters"
        " LoadTPUEmbeddingFrequencyEstimatorParameters"
        " LoadTPUEmbeddingMDLAdagradLightParameters"
        " LoadTPUEmbeddingMomentumParameters"
        " LoadTPUEmbeddingProximalAdagradParameters"
        " LoadTPUEmbeddingProximalYogiParameters"
        " LoadTPUEmbeddingRMSPropParameters"
        " LoadTPUEmbeddingStochasticGradientDescentParameters MergeDedupData"
        " RecvTPUEmbeddingActivations RetrieveAllTPUEmbeddingParameters"
        " RetrieveTPUEmbeddingADAMParameters"
        " RetrieveTPUEmbeddingAdadeltaParameters"
        " RetrieveTPUEmbeddingAdagradMomentumParameters"
        " RetrieveTPUEmbeddingAdagradParameters"
        " RetrieveTPUEmbeddingCenteredRMSPropParameters"
        " RetrieveTPUEmbeddingFTRLParameters"
        " RetrieveTPUEmbeddingFrequencyEstimatorParameters"
        " RetrieveTPUEmbeddingMDLAdagradLightParameters"
        " RetrieveTPUEmbeddingMomentumParameters"
        " RetrieveTPUEmbeddingProximalAdagradParameters"
        " RetrieveTPUEmbeddingProximalYogiParameters"
        " RetrieveTPUEmbeddingRMSPropParameters"
        " RetrieveTPUEmbeddingStochasticGradientDescentParameters"
        " SendTPUEmbeddingGradients ShutdownDistributedTPU ShutdownTPUSystem"
        " SortListOfSparseCoreCooTensors SplitDedupData"
        " StoreMinibatchStatisticsInFdo"
        " TPUAnnotateTensorsWithDynamicShape TPUCopyWithDynamicShape"
        " TPUEmbeddingActivations"
        " XlaSparseCoreAdagrad XlaSparseCoreAdagradMomentum XlaSparseCoreAdam"
        " XlaSparseCoreFtrl XlaSparseCoreSgd"
        " XlaSparseDenseMatmulCustomCombinerOnTcGradWithAdagradAndCsrInput"
        " XlaSparseDenseMatmulCustomCombinerOnTcGradWithAdagradMomentumAndCsrInput"
        " XlaSparseDenseMatmulCustomCombinerOnTcGradWithAdamAndCsrInput"
        " XlaSparseDenseMatmulCustomCombinerOnTcGradWithCsrInput"
        " XlaSparseDenseMatmulCustomCombinerOnTcGradWithFtrlAndCsrInput"
        " XlaSparseDenseMatmulCustomCombinerOnTcGradWithSgdAndCsrInput"
        " XlaSparseDenseMatmulCustomCombinerOnTcWithCsrInput"
        " XlaSparseDenseMatmulGradWithAdagradAndCsrInput"
        " XlaSparseDenseMatmulGradWithAdagradAndStaticBufferSize"
        " XlaSparseDenseMatmulGradWithAdagradMomentumAndCsrInput"
        " XlaSparseDenseMatmulGradWithAdagradMomentumAndStaticBufferSize"
        " XlaSparseDenseMatmulGradWithAdamAndCsrInput"
        " XlaSparseDenseMatmulGradWithAdamAndStaticBufferSize"
        " XlaSparseDenseMatmulGradWithFtrlAndCsrInput"
        " XlaSparseDenseMatmulGradWithFtrlAndStaticBufferSize"
        " XlaSparseDenseMatmulGradWithSgdAndCsrInput"
        " XlaSparseDenseMatmulGradWithSgdAndStaticBufferSize"
        " XlaSparseDenseMatmulWithCsrInput"
        " XlaSparseDenseMatmulWithStaticBufferSize"
    ),
}
