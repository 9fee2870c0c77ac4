// SPDX-License-Identifier: Apache-2.0
// Attributes for the place of a window: shared by convolution and pooling.
#ifndef MPT_DIALECT_MPT_WINDOWATTRIBUTES_TD
#define MPT_DIALECT_MPT_WINDOWATTRIBUTES_TD

include "mpt/Dialect/MPT/MPTBase.td"

defvar windowAttrs = (ins DenseI64ArrayAttr:$strides, DenseI64ArrayAttr:$dilations, DenseI64ArrayAttr:$pads_low,
  DenseI64ArrayAttr:$pads_high);

#endif
