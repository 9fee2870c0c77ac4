// SPDX-License-Identifier: Apache-2.0
// Output extents of windows.
#include "Windows.h"

using namespace mlir;
using namespace mpt;

LogicalResult mpt::slide(std::optional<Location> loc, ArrayRef<int64_t> in, const SlidingWindow &window,
                         SmallVectorImpl<int64_t> &out) {
  size_t rank = in.size();
  for (ArrayRef<int64_t> values : {window.kernel, window.strides, window.dilations, window.low, window.high})
    if (values.size() != rank)
      return emitOptionalError(loc, "C3: expected ", rank, " entries in each window attribute, got ", values.size());
  for (size_t i = 0; i < rank; ++i) {
    if (window.kernel[i] < 1 || window.strides[i] < 1 || window.dilations[i] < 1)
      return emitOptionalError(loc, "C3: expected positive kernel, strides and dilations");
    int64_t room = in[i] + window.low[i] + window.high[i] - ((window.kernel[i] - 1) * window.dilations[i] + 1);
    if (room < 0)
      return emitOptionalError(loc, "C4: expected a window no larger than the padded input, got kernel ",
                               window.kernel[i], " over extent ", in[i]);
    out.push_back(room / window.strides[i] + 1);
  }
  return success();
}
