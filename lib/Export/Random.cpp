// SPDX-License-Identifier: Apache-2.0
// Export of ops that draw from the counter-based generator.
#include "Philox.h"

#include <cmath>

using namespace mlir;
using namespace mpt;

namespace {

/// x / (1 - ratio), rounded once, where the generator keeps an element.
OnnxValue exportDropout(DropoutOp op, OnnxWriter &w) {
  Arithmetic a(w, w.innerType());
  double ratio = op.getRatio().convertToDouble();
  OnnxValue words = randomWords(w, op.getKey(), op.getStream(), tensorType(op.getY()));
  OnnxValue least = w.integer(static_cast<int64_t>(std::floor(std::ldexp(ratio, 32))));
  OnnxValue kept = a.out(a.div(a.in(op.getX()), a.number(1 - ratio)), op.getY());
  return w.node("Where", {w.node("GreaterOrEqual", {words, least}), kept, w.scalar(elementOf(op.getY()), 0)});
}

OnnxValue exportRandomUniform(RandomUniformOp op, OnnxWriter &w) {
  Arithmetic a(w, w.innerType());
  double low = op.getLow().convertToDouble(), high = op.getHigh().convertToDouble();
  OnnxValue words = randomWords(w, op.getKey(), op.getStream(), tensorType(op.getY()));
  Type index = IntegerType::get(op.getContext(), 64);
  OnnxValue share = a.mul(w.cast(w.node("Div", {words, w.integer(256)}), index, a.type), 0x1p-24);
  return a.out(a.add(a.number(low), a.mul(share, high - low)), op.getY());
}

} // namespace

void mpt::addRandomRules(ExportRules &rules) {
  addRule<DropoutOp>(rules, [](DropoutOp op, OnnxWriter &w) { return Values{exportDropout(op, w)}; });
  addRule<RandomUniformOp>(rules, [](RandomUniformOp op, OnnxWriter &w) { return Values{exportRandomUniform(op, w)}; });
}
