// SPDX-License-Identifier: Apache-2.0
// Cast family: conversion of element types.
#ifndef MPT_DIALECT_MPT_CASTOPS_TD
#define MPT_DIALECT_MPT_CASTOPS_TD

include "mpt/Dialect/MPT/MPTBase.td"

def MPT_CastOp : MPT_Op<"cast", "Movement"> {
  let summary = "conversion of element type";
  let description = [{
    Rounds floats as `rounding` says and treats values beyond the result's range as `overflow` says; NaN stays NaN. `key`
    (tensor<2xi64>: seed, step) and `stream` select the random bits of stochastic rounding: element i of the tensor takes
    number i of stream `stream`. Float to integer truncates toward zero; to i1 it means != 0. A rounding cast is meaning
    and is never folded away; only casts that are exact for every value fold.
    C1: key is given if and only if rounding is stochastic. C2: x and y have one shape.
  }];
  let arguments = (ins MPT_Number:$x, Optional<MPT_Int>:$key,
    DefaultValuedAttr<MPT_RoundingAttr, "::mpt::Rounding::NearestEven">:$rounding,
    DefaultValuedAttr<MPT_OverflowAttr, "::mpt::Overflow::Infinity">:$overflow,
    DefaultValuedAttr<I64Attr, "0">:$stream);
  let results = (outs MPT_Number:$y);
  let builders = [OpBuilder<(ins "::mlir::Value":$x, "::mlir::Type":$element_type)>];
  let assemblyFormat = "$x (`key` $key^ `:` type($key))? attr-dict `:` type($x) `to` type($y)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

// ---- optimizer slots in 8 bits
class MPT_BlocksOp<string mnemonic> : MPT_Op<mnemonic, "Pinned"> {
  let hasVerifier = 1;
  let extraClassDeclaration = precisionMethods # [{
    /// Elements that share a scale.
    int64_t getBlock() {
      auto scales = ::llvm::cast<::mlir::RankedTensorType>(getScales().getType());
      return ::llvm::cast<::mlir::RankedTensorType>(getCodes().getType()).getNumElements() / scales.getNumElements();
    }
  }];
}
def MPT_EncodeBlocksOp : MPT_BlocksOp<"encode_blocks"> {
  let summary = "8-bit codes of x's elements, and one FP32 scale a block of them, in row-major order (arXiv 2110.02861)";
  let description = [{
    With amax the largest magnitude in a block, or 1e-12 where that is less, codes of type
    - ui8 are positions in a dynamic map of 256 values from -1 (0 unless `signed`) to 1: seven decades, each of which
      divides [0.1, 1] times a power of ten in twice as many parts as the one below it and has their middles, and 0 and 1.
      scale = amax; the code is that of the value next to x / scale, the upper one of two that are as near.
    - f8E4M3FN are x / scale, rounded to nearest even, with scale = amax / 448.
    Unless `signed`, x is not negative, and none but 0 has the code of 0: smaller ones have the next. C1: codes has x's shape.
    C2: scales is a vector whose extent divides the number of elements. C3: codes is ui8 or f8E4M3FN.
  }];
  let arguments = (ins MPT_Float:$x, DefaultValuedAttr<BoolAttr, "true">:$is_signed);
  let results = (outs MPT_Number:$codes, MPT_Float:$scales);
}
def MPT_DecodeBlocksOp : MPT_BlocksOp<"decode_blocks"> {
  let summary = "values of the codes that mpt.encode_blocks makes, times their scales";
  let description = [{C1: x has codes' shape. C2, C3: as of mpt.encode_blocks.}];
  let arguments = (ins MPT_Number:$codes, MPT_Float:$scales, DefaultValuedAttr<BoolAttr, "true">:$is_signed);
  let results = (outs MPT_Float:$x);
}

#endif
