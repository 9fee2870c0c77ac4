// SPDX-License-Identifier: Apache-2.0
// Random family: the counter-based generator (Salmon et al., SC 2011), and the ops that draw from it.
#include "Rules.h"

using namespace mlir;
using namespace mpt;

/// Philox4x32-10 with counter (block, stream, step) and key seed. The upper half of the step word is a part of the
/// stream.
void RandomWords::fill(uint64_t wanted) {
  block = wanted;
  uint32_t counter[4] = {static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                         static_cast<uint32_t>(stream + (step >> 32)), static_cast<uint32_t>(step)};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = UINT64_C(0xD2511F53) * counter[0], b = UINT64_C(0xCD9E8D57) * counter[2];
    uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(b),
                        static_cast<uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(a)};
    std::copy(next, next + 4, counter);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  std::copy(counter, counter + 4, words);
}

namespace {

LogicalResult interpretRandomUniform(RandomUniformOp op, InterpreterFrame &frame) {
  double low = op.getLow().convertToDouble(), high = op.getHigh().convertToDouble();
  Tensor y = frame.zeros(op.getY());
  RandomWords words(frame.get(op.getKey()), op.getStream());
  for (auto [i, out] : llvm::enumerate(y.writeReals()))
    out = low + (high - low) * std::ldexp(words[i] >> 8, -24);
  frame.set(op.getY(), std::move(y));
  return success();
}

LogicalResult interpretDropout(DropoutOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  RandomWords words(frame.get(op.getKey()), op.getStream());
  double ratio = op.getRatio().convertToDouble();
  auto threshold = static_cast<uint64_t>(std::floor(std::ldexp(ratio, 32)));
  Tensor y = frame.zeros(op.getY());
  for (auto [i, in, out] : llvm::enumerate(x.reals(), y.writeReals()))
    out = words[i] >= threshold ? in / (1 - ratio) : 0.0;
  frame.set(op.getY(), std::move(y));
  return success();
}

} // namespace

void mpt::attachRandomRules(MLIRContext *context) {
  attachRule<DropoutOp, interpretDropout>(context);
  attachRule<RandomUniformOp, interpretRandomUniform>(context);
}
