// SPDX-License-Identifier: Apache-2.0
// LSTMGrad and GRUGrad (com.microsoft), the gradients of ONNX Runtime's LSTMTraining and GRUTraining: one
// mpt.recurrence_backward a direction, and GEMMs over all steps.
#include "RecurrentGradients.h"

#include "RowLengths.h"

#include "mpt/Dialect/MPT/RecurrentGradients.h"

using namespace mlir;
using namespace mpt;

namespace {

class LayerGradient {
public:
  LayerGradient(Binder &b, RecurrentCell cell) : b(b), isLstm(cell == RecurrentCell::lstm), cell(cell) {}

  LogicalResult run() {
    if (failed(readForm()) || failed(readOperands()))
      return failure();
    Gradients all;
    for (int64_t direction = 0; direction < directions; ++direction)
      differentiate(direction, all);
    Value dx = all.x.front();
    for (Value more : ArrayRef(all.x).drop_front())
      dx = b.add(dx, more);
    ArrayRef<Value> parts[] = {all.w, all.r, all.bias, all.h0, all.c0};
    if (b.wants(0) && failed(b.set(0, dx)))
      return failure();
    for (auto [i, part] : llvm::enumerate(parts))
      if (b.wants(i + 1) && failed(b.set(i + 1, part.size() == 1 ? part.front() : b.concat(part, 0))))
        return failure();
    return success();
  }

private:
  Binder &b;
  bool isLstm;
  RecurrentCell cell;
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, directions = 1;
  bool backwardFirst = false, linear = false;
  std::optional<RowLengths> rows; ///< where rows may end early

  /// By direction; all but the gradient of x with a dimension for it.
  struct Gradients {
    SmallVector<Value> x, w, r, bias, h0, c0;
  };
  /// Where the node has its operands; the first three are x and the weights.
  struct Places {
    unsigned lengths, h0, y, gates, dy, dh;
  };
  Places places() const { return isLstm ? Places{3, 4, 6, 8, 9, 10} : Places{4, 5, 6, 7, 8, 9}; }
  static constexpr unsigned ofC0 = 5, ofCells = 7, ofDc = 11; // LSTM
  int64_t gates() const { return isLstm ? 4 : 3; }
  bool isReverse(int64_t direction) const { return backwardFirst || direction == 1; }

  // ---- the node

  LogicalResult readForm() {
    StringRef direction = b.stringAttr("direction", "forward");
    if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
      return b.fail() << "expected direction = forward, reverse or bidirectional, got '" << direction << "'";
    directions = direction == "bidirectional" ? 2 : 1;
    backwardFirst = direction == "reverse";
    linear = !isLstm && b.intAttr("linear_before_reset", 0);
    if (b.attr("clip") || (isLstm && b.intAttr("input_forget", 0)) || (isLstm && b.has(12)))
      return b.fail() << "expected no clip, input_forget or peepholes";
    auto names = dyn_cast_or_null<ArrayAttr>(b.attr("activations"));
    SmallVector<StringRef> usual =
        isLstm ? SmallVector<StringRef>{"sigmoid", "tanh", "tanh"} : SmallVector<StringRef>{"sigmoid", "tanh"};
    for (auto [i, name] : llvm::enumerate(names ? names.getValue() : ArrayRef<Attribute>()))
      if (!cast<StringAttr>(name).getValue().equals_insensitive(usual[i % usual.size()]))
        return b.fail() << "expected the default activations, got " << name;
    b.ignore({"activation_alpha", "activation_beta"});
    return success();
  }

  LogicalResult expect(unsigned i, StringRef what, ArrayRef<int64_t> shape) {
    if (!b.has(i) || (b.shape(i) == shape && b.element(i) == b.element(0)))
      return success();
    return b.fail() << "expected " << what << " of shape [" << shape << "] and type " << b.element(0) << ", got "
                    << b.in(i).getType();
  }

  LogicalResult readOperands() {
    Places at = places();
    if (failed(b.needFloat(3, 3)))
      return failure();
    if (!b.has(at.y) || !b.has(at.gates) || (isLstm && !b.has(ofCells)))
      return b.fail() << "expected the states and gates that the forward pass has saved";
    if (b.rank(0) != 3 || b.rank(2) != 3)
      return b.fail() << "expected an input and recurrent weights of rank 3, got " << b.in(0).getType() << " and "
                      << b.in(2).getType();
    steps = b.shape(0)[0], batch = b.shape(0)[1], inputs = b.shape(0)[2], hidden = b.shape(2)[2];
    if (int64_t stated = b.intAttr("hidden_size", hidden); stated != hidden || hidden < 1 || steps < 1)
      return b.fail() << "expected hidden_size = " << hidden << " as the recurrent weights have it, and steps, got "
                      << stated << " and " << steps;
    SmallVector<int64_t> state = {directions, batch, hidden}, all = {steps, directions, batch, hidden},
                         gatesShape = {steps, directions, batch, gates() * hidden};
    if (failed(expect(1, "input weights", {directions, gates() * hidden, inputs})) ||
        failed(expect(2, "recurrent weights", {directions, gates() * hidden, hidden})) ||
        failed(expect(at.h0, "an initial state", state)) || failed(expect(at.y, "states", all)) ||
        failed(expect(at.gates, "gates", gatesShape)) || failed(expect(at.dy, "gradients of states", all)) ||
        failed(expect(at.dh, "the last state's gradient", state)))
      return failure();
    if (isLstm &&
        (failed(expect(ofC0, "an initial cell state", state)) || failed(expect(ofCells, "cell states", all)) ||
         failed(expect(ofDc, "the last cell state's gradient", state))))
      return failure();
    if (!isLstm && failed(expect(3, "biases", {directions, 6 * hidden})))
      return failure();
    return readLengths();
  }

  LogicalResult readLengths() {
    unsigned i = places().lengths;
    if (b.has(i) && (b.rank(i) != 1 || b.shape(i)[0] != batch || !b.element(i).isInteger()))
      return b.fail() << "expected sequence lengths of shape [" << batch << "] and an integer type, got "
                      << b.in(i).getType();
    if (RowLengths::endEarly(b, i, steps))
      rows.emplace(b, i, steps);
    return success();
  }

  // ---- parts of operands

  /// Entry `direction` of dimension `axis`, without it.
  Value part(unsigned i, int64_t axis, int64_t direction) {
    SmallVector<int64_t> shape(b.shape(i)), starts(shape.size(), 0);
    starts[axis] = direction;
    shape[axis] = 1;
    Value found = directions == 1 ? b.in(i) : b.slice(b.in(i), starts, shape);
    shape.erase(shape.begin() + axis);
    return b.reshape(found, shape);
  }
  Value stateOr0(unsigned i, int64_t direction) {
    auto type = RankedTensorType::get({batch, hidden}, b.element(0));
    return b.has(i) ? part(i, 0, direction) : b.splat(type, 0);
  }

  // Where rows end early, all that the recurrence sees is in running order and zero behind the rows' ends, so that no
  // gradient comes from there.

  /// `x` [steps, batch, n] as the recurrence sees it.
  Value running(Value x, bool backward) {
    if (!rows)
      return x;
    x = rows->within(x);
    return backward ? rows->reversed(x) : x;
  }

  /// A gradient of the states of all steps, as the recurrence sees it: operand `all`, plus operand `last` at each
  /// row's last step. Null where neither is given.
  Value arriving(std::optional<unsigned> all, unsigned last, int64_t direction) {
    bool backward = isReverse(direction);
    Value d = all && b.has(*all) ? running(part(*all, 1, direction), backward) : Value();
    if (!b.has(last))
      return d;
    Value end = part(last, 0, direction);
    if (rows) {
      end = rows->atLast(end);
    } else {
      end = b.reshape(end, {1, batch, hidden});
      if (steps > 1) {
        Value others = b.splat(RankedTensorType::get({steps - 1, batch, hidden}, b.element(0)), 0);
        end = backward ? b.concat({end, others}, 0) : b.concat({others, end}, 0);
      }
    }
    return d ? b.add(d, end) : end;
  }

  /// `d` [batch, hidden], the gradient of the state before a row's first step; with operand `last`'s where a row has no
  /// step, as its last state is that one.
  Value ofInitial(Value d, unsigned last, int64_t direction) {
    if (!rows || !b.has(last))
      return d;
    return b.add(d, b.cast(rows->ofEmpty(part(last, 0, direction)), tensorType(d).getElementType()));
  }

  void differentiate(int64_t direction, Gradients &all) {
    Places at = places();
    bool backward = isReverse(direction), reverse = backward && !rows;
    Value x = running(b.in(0), backward), w = part(1, 0, direction), r = part(2, 0, direction);
    Value h0 = stateOr0(at.h0, direction), y = running(part(at.y, 1, direction), backward);
    Value saved = running(part(at.gates, 1, direction), backward), kept;
    Value dy = arriving(at.dy, at.dh, direction);
    SmallVector<Value> more = {saved};
    if (isLstm) {
      more.append({b.widen(running(part(ofCells, 1, direction), backward)), b.widen(stateOr0(ofC0, direction))});
      if (Value dc = arriving(std::nullopt, ofDc, direction))
        more.push_back(b.widen(dc));
    } else {
      Value before = statesBefore(b, y, h0, reverse);
      if (linear)
        more[0] = b.concat({saved, behindReset(before, r, direction)}, 2);
      else
        kept = b.mul(b.slice(saved, {0, 0, hidden}, {steps, batch, hidden}), before);
    }
    auto gradient =
        RecurrenceBackwardOp::create(b.builder, b.loc, cell, dy ? dy : b.splatLike(y, 0), r, h0, y, more, reverse);
    Value ofSums = gradient.getDx(), d = flattenSteps(b, ofSums), bias = b.sum(ofSums, {0, 1}), ofState = bias;
    if (linear)
      ofState = b.concat({b.slice(bias, {0}, {2 * hidden}), b.sum(gradient.getOthers()[0], {0, 1})}, 0);
    auto own = [&](Value gradient) {
      SmallVector<int64_t> shape(tensorType(gradient).getShape());
      shape.insert(shape.begin(), 1);
      return b.cast(b.reshape(gradient, shape), b.element(0));
    };
    Value dx = b.reshape(b.matmul(d, w), {steps, batch, inputs});
    all.x.push_back(rows && backward ? rows->reversed(dx) : dx);
    all.w.push_back(own(b.matmul(d, flattenSteps(b, x), true)));
    all.r.push_back(own(recurrentWeightsGradient(b, gradient, kept)));
    all.bias.push_back(own(b.concat({bias, ofState}, 0)));
    all.h0.push_back(own(ofInitial(gradient.getDh0(), at.dh, direction)));
    if (isLstm)
      all.c0.push_back(own(ofInitial(gradient.getOthers()[0], ofDc, direction)));
  }

  /// The operand of GRU's reset gate, which the file does not save.
  Value behindReset(Value before, Value r, int64_t direction) {
    Value last = b.slice(r, {2 * hidden, 0}, {hidden, hidden});
    Value sum = b.reshape(b.matmul(flattenSteps(b, before), last, false, true), {steps, batch, hidden});
    if (!b.has(3))
      return sum;
    Value bias = b.slice(part(3, 0, direction), {5 * hidden}, {hidden});
    return b.add(sum, b.broadcast(bias, {steps, batch, hidden}, {2}));
  }
};

template <RecurrentCell cell> LogicalResult importLayerGradient(Binder &b) { return LayerGradient(b, cell).run(); }

} // namespace

void mpt::registerRecurrentGradients(RuleTable &t) {
  StringRef ms = "com.microsoft";
  t.onDomain(ms, "LSTMGrad", importLayerGradient<RecurrentCell::lstm>, NumericClass::Contraction);
  t.onDomain(ms, "GRUGrad", importLayerGradient<RecurrentCell::gru>, NumericClass::Contraction);
}
