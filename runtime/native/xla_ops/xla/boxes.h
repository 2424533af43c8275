// Programs that pick boxes by score.
#pragma once

#include <cstdint>

#include "base/xla/builder.h"
#include "xla_ops/xla/pieces.h"

namespace opwright::xla_ops {

// Boxes in groups, each of which is picked from by itself. All tensors are of float32.
struct Boxes {
  std::vector<xla::XlaOp> corners;  // y1, x1, y2 and x2, each [groups, boxes].
  xla::XlaOp scores;                // [groups, boxes].
};

// What decides which boxes are picked. All are scalars.
struct Thresholds {
  xla::XlaOp overlap;
  xla::XlaOp score;
  // If it is above 0, overlaps lower scores, and no box is left out for its overlap.
  xla::XlaOp sigma;
};

// Boxes by descending score. Those after the first `counts` of a group are 0.
struct Picked {
  xla::XlaOp indices;  // [groups, most], int32.
  xla::XlaOp scores;   // [groups, most].
  xla::XlaOp counts;   // [groups], int32.
};

// Picks at most `most` boxes of each group, the first of those with equal scores. `most` is
// not above the number of boxes.
Picked PickBoxes(const Boxes& boxes, const Thresholds& thresholds, int64_t most);

struct Combination {
  int64_t most_of_class;
  int64_t most;
  bool clip;
};

struct Combined {
  xla::XlaOp boxes;    // [batch, most, 4].
  xla::XlaOp scores;   // [batch, most].
  xla::XlaOp classes;  // [batch, most].
  xla::XlaOp counts;   // [batch].
};

// Picks from `boxes` [batch, n, 1 or classes, 4] for each class of `scores` [batch, n,
// classes], then takes the best of all classes.
Combined CombineClasses(xla::XlaOp boxes, xla::XlaOp scores, const Thresholds& thresholds,
                        const Combination& spec);

}  // namespace opwright::xla_ops
