// Casts with their rounding and overflow modes, and the counter-based generator (Salmon et al., SC 2011).
#include "Rules.h"

using namespace mlir;
using namespace mpt;

/// Word `index` % 4 of Philox4x32-10 with counter (index / 4, stream, step) and key seed. The upper half of the step
/// word is a part of the stream.
uint32_t mpt::randomWord(const Tensor &key, int64_t stream, uint64_t index) {
  auto seed = static_cast<uint64_t>(key.ints()[0]), step = static_cast<uint64_t>(key.ints()[1]);
  uint32_t counter[4] = {static_cast<uint32_t>(index / 4), static_cast<uint32_t>((index / 4) >> 32),
                         static_cast<uint32_t>(static_cast<uint64_t>(stream) + (step >> 32)),
                         static_cast<uint32_t>(step)};
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    uint64_t a = UINT64_C(0xD2511F53) * counter[0], b = UINT64_C(0xCD9E8D57) * counter[2];
    uint32_t next[4] = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ k0, static_cast<uint32_t>(b),
                        static_cast<uint32_t>(a >> 32) ^ counter[3] ^ k1, static_cast<uint32_t>(a)};
    std::copy(next, next + 4, counter);
    k0 += 0x9E3779B9;
    k1 += 0xBB67AE85;
  }
  return counter[index % 4];
}

/// Truncation toward zero; values beyond the type's range give its nearest bound, NaN gives 0.
static int64_t truncate(double x, IntegerType type) {
  if (type.getWidth() == 1)
    return x != 0.0;
  if (std::isnan(x))
    return 0;
  bool isUnsigned = type.isUnsigned();
  double bound = std::ldexp(1.0, static_cast<int>(type.getWidth()) - (isUnsigned ? 0 : 1));
  if (x >= bound)
    return isUnsigned ? wrapInteger(-1, type) : static_cast<int64_t>((UINT64_C(1) << (type.getWidth() - 1)) - 1);
  if (x <= (isUnsigned ? 0.0 : -bound))
    return isUnsigned ? 0 : static_cast<int64_t>(UINT64_MAX << (type.getWidth() - 1));
  return isUnsigned && type.getWidth() == 64 ? static_cast<int64_t>(static_cast<uint64_t>(x)) : static_cast<int64_t>(x);
}

static LogicalResult interpretCast(CastOp op, InterpreterFrame &frame) {
  const Tensor &x = frame.get(op.getX());
  Tensor y = frame.zeros(op.getY());
  if (!y.isFloat()) {
    auto type = cast<IntegerType>(y.getElementType());
    for (auto [i, out] : llvm::enumerate(y.writeInts()))
      out = x.isFloat() ? truncate(x.reals()[i], type) : type.getWidth() == 1 ? x.ints()[i] != 0 : x.ints()[i];
  } else {
    bool rounds = !frame.isOracle();
    FloatFormat format(cast<FloatType>(y.getElementType()));
    Rounding rounding = op.getRounding();
    for (auto [i, out] : llvm::enumerate(y.writeReals())) {
      double value = x.number(i);
      if (rounds) {
        uint32_t word = rounding == Rounding::Stochastic ? randomWord(frame.get(op.getKey()), op.getStream(), i) : 0;
        value = format.round(value, rounding, op.getOverflow(), word);
      }
      out = value;
    }
  }
  frame.set(op.getY(), std::move(y));
  return success();
}

static LogicalResult interpretRandomUniform(RandomUniformOp op, InterpreterFrame &frame) {
  double low = op.getLow().convertToDouble(), high = op.getHigh().convertToDouble();
  Tensor y = frame.zeros(op.getY());
  for (auto [i, out] : llvm::enumerate(y.writeReals()))
    out = low + (high - low) * std::ldexp(randomWord(frame.get(op.getKey()), op.getStream(), i) >> 8, -24);
  frame.set(op.getY(), std::move(y));
  return success();
}

void mpt::attachCastRules(MLIRContext *context) {
  attachRule<CastOp, interpretCast>(context);
  attachRule<RandomUniformOp, interpretRandomUniform>(context);
}
