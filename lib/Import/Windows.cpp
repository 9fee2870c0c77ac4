// SPDX-License-Identifier: Apache-2.0
// Windows of convolutions and pooling: auto_pad and ceil_mode become pads.
#include "Windows.h"

using namespace mlir;
using namespace mpt;

FailureOr<Window> mpt::windowOf(Binder &b, ArrayRef<int64_t> in, ArrayRef<int64_t> kernel) {
  size_t rank = in.size();
  SmallVector<int64_t> ones(rank, 1), zeros(2 * rank, 0);
  Window w{SmallVector<int64_t>(kernel), b.intsAttr("strides", ones), b.intsAttr("dilations", ones), {}, {}};
  if (failed(b.checkWindow("kernel extents", w.kernel, rank)) || failed(b.checkWindow("strides", w.strides, rank)) ||
      failed(b.checkWindow("dilations", w.dilations, rank)))
    return failure();
  SmallVector<int64_t> pads = b.intsAttr("pads", zeros);
  StringRef mode = b.stringAttr("auto_pad", "NOTSET");
  if (failed(b.checkPads(pads, rank, /*cropping=*/true)))
    return failure();
  for (size_t i = 0; i < rank; ++i) {
    int64_t span = (w.kernel[i] - 1) * w.dilations[i] + 1, low = pads[i], high = pads[rank + i];
    if (mode == "SAME_UPPER" || mode == "SAME_LOWER") {
      int64_t out = (in[i] + w.strides[i] - 1) / w.strides[i];
      int64_t total = std::max<int64_t>((out - 1) * w.strides[i] + span - in[i], 0);
      low = mode == "SAME_UPPER" ? total / 2 : total - total / 2;
      high = total - low;
    } else if (mode == "VALID") {
      low = high = 0;
    } else if (mode != "NOTSET") {
      return b.fail() << "expected auto_pad NOTSET, VALID, SAME_UPPER or SAME_LOWER, got '" << mode << "'";
    }
    int64_t room = in[i] + low + high - span;
    bool roundUp = b.intAttr("ceil_mode", 0) != 0;
    if (roundUp && room < 0 && room > -w.strides[i] && w.dilations[i] == 1) {
      // One window, which hangs over the end: the part beyond is cut off.
      w.kernel[i] += room;
      room = 0;
    }
    if (room < 0)
      return b.fail() << "expected a window no larger than the padded input, got kernel " << w.kernel[i]
                      << " (dilation " << w.dilations[i] << ") over extent " << in[i] << " with pads " << low << " and "
                      << high;
    if (roundUp) {
      // Round up, but no window starts in the padding at the end.
      int64_t out = (room + w.strides[i] - 1) / w.strides[i] + 1;
      if ((out - 1) * w.strides[i] >= in[i] + low)
        --out;
      high += std::max<int64_t>((out - 1) * w.strides[i] - room, 0);
    }
    w.low.push_back(low);
    w.high.push_back(high);
  }
  return w;
}
