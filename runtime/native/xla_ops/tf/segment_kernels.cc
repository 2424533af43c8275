// Kernels for XLA of reductions over segments.
#include <cstdint>
#include <limits>

#include "base/tf/register_xla.h"
#include "base/tf/xla_call.h"
#include "xla_ops/tf/types.h"
#include "xla_ops/xla/segments.h"

namespace opwright::xla_ops {
namespace {

// Reads the number of segments from ids that are known: the last of them, plus one.
absl::Status SegmentsOf(const XlaCall& call, int i, int64_t* segments) {
  Sizes ids;
  TF_RETURN_IF_ERROR(call.Known(i, &ids));
  int64_t last = 0;
  for (const int64_t id : ids) {
    if (id < 0) return call.Refuse(i, StrCat("must not be negative, has ", id));
    if (id < last) {
      return call.Refuse(i, StrCat("must be sorted, has ", id, " after ", last));
    }
    last = id;
  }
  if (last == std::numeric_limits<int64_t>::max()) return call.Refuse(i, "is too large");
  *segments = ids.empty() ? 0 : last + 1;
  return absl::OkStatus();
}

absl::Status CheckRows(const XlaCall& call, int i, int64_t segments) {
  if (call.rank(0) < 1) return call.Refuse(0, "must have at least one dimension");
  Sizes made = call.shape(0);
  made[0] = segments;
  return call.CheckSize(call.NameOf(i), made);
}

template <Reduction kReduction>
class SegmentOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    if (call->rank(0) < 1) return call->Refuse(0, "must have at least one dimension");
    TF_RETURN_IF_ERROR(call->WantShape(1, {call->shape(0)[0]}));
    int64_t segments;
    TF_RETURN_IF_ERROR(SegmentsOf(*call, 1, &segments));
    TF_RETURN_IF_ERROR(CheckRows(*call, 1, segments));
    call->Set(0, ReduceSegments(kReduction, call->input(0), call->input(1), segments));
    return absl::OkStatus();
  }
};

template <Reduction kReduction, bool kNumSegments>
class SparseSegmentOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(1, 1));
    TF_RETURN_IF_ERROR(call->WantShape(2, call->shape(1)));
    int64_t segments;
    if (kNumSegments) {
      TF_RETURN_IF_ERROR(call->KnownSize(3, 0, &segments));
    } else {
      TF_RETURN_IF_ERROR(SegmentsOf(*call, 2, &segments));
    }
    TF_RETURN_IF_ERROR(CheckRows(*call, kNumSegments ? 3 : 2, segments));
    if (call->shape(0)[0] == 0 && call->count(1) > 0) {
      return call->Refuse(0, "has no rows, and indices name some");
    }
    xla::XlaOp rows = call->input(0);
    if (call->shape(0)[0] > 0) rows = GatherRows(rows, call->input(1));
    call->Set(0, ReduceSegments(kReduction, rows, call->input(2), segments));
    return absl::OkStatus();
  }
};

template <Reduction kReduction>
class SparseSegmentGradOp : public XlaKernel {
 public:
  using XlaKernel::XlaKernel;

 protected:
  absl::Status Build(XlaCall* call) const override {
    TF_RETURN_IF_ERROR(call->WantRank(1, 1));
    TF_RETURN_IF_ERROR(call->WantShape(2, call->shape(1)));
    int64_t rows;
    TF_RETURN_IF_ERROR(call->KnownSize(3, 0, &rows));
    TF_RETURN_IF_ERROR(CheckRows(*call, 3, rows));
    const xla::XlaOp made =
        SparseSegmentGradient(kReduction, call->input(0), call->input(1), call->input(2), rows);
    call->Set(0, made);
    return absl::OkStatus();
  }
};

#define REGISTER_SEGMENT(NAME, REDUCTION, TYPES)                                          \
  OPWRIGHT_REGISTER_XLA("Segment" NAME,                                                   \
                        .TypeConstraint("T", TYPES).TypeConstraint("Tindices", kIndices), \
                        SegmentOp<REDUCTION>)
REGISTER_SEGMENT("Sum", Reduction::kSum, kNumeric);
REGISTER_SEGMENT("Mean", Reduction::kMean, kNumeric);
REGISTER_SEGMENT("Prod", Reduction::kProduct, kNumeric);
REGISTER_SEGMENT("Max", Reduction::kMax, kReal);
REGISTER_SEGMENT("Min", Reduction::kMin, kReal);
#undef REGISTER_SEGMENT

#define REGISTER_AS(NAME, TYPES, ...)                                 \
  OPWRIGHT_REGISTER_XLA(NAME,                                         \
                        .TypeConstraint("T", TYPES)                   \
                            .TypeConstraint("Tidx", kIndices)         \
                            .TypeConstraint("Tsegmentids", kIndices), \
                        __VA_ARGS__)
#define REGISTER_SPARSE(NAME, REDUCTION, TYPES)                                \
  REGISTER_AS("SparseSegment" NAME, TYPES, SparseSegmentOp<REDUCTION, false>); \
  REGISTER_AS("SparseSegment" NAME "WithNumSegments", TYPES,                   \
              SparseSegmentOp<REDUCTION, true>);                               \
  REGISTER_AS("SparseSegment" NAME "Grad", kFloats, SparseSegmentGradOp<REDUCTION>)
REGISTER_SPARSE("Sum", Reduction::kSum, kReal);
REGISTER_SPARSE("Mean", Reduction::kMean, kFloats);
REGISTER_SPARSE("SqrtN", Reduction::kSqrtN, kFloats);
#undef REGISTER_SPARSE
#undef REGISTER_AS

const bool kSegmentConstantsRegistered =
    RegisterXlaConstants(
        {"SegmentSum", "SegmentMean", "SegmentProd", "SegmentMax", "SegmentMin",
         "SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN"},
        {"segment_ids"}) &&
    RegisterXlaConstants({"SparseSegmentSumWithNumSegments", "SparseSegmentMeanWithNumSegments",
                          "SparseSegmentSqrtNWithNumSegments"},
                         {"num_segments"}) &&
    RegisterXlaConstants(
        {"SparseSegmentSumGrad", "SparseSegmentMeanGrad", "SparseSegmentSqrtNGrad"},
        {"output_dim0"});

}  // namespace
}  // namespace opwright::xla_ops
