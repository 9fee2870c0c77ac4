// SPDX-License-Identifier: Apache-2.0
// RNN, LSTM and GRU, and ONNX Runtime's LSTMTraining and GRUTraining: one GEMM for the inputs of all steps, then
// mpt.recurrence, or, in forms that it does not take, the steps one by one.
#include "Activations.h"
#include "RowLengths.h"

using namespace mlir;
using namespace mpt;

namespace {

enum class Cell { rnn, lstm, gru };

/// A node of RNN, LSTM or GRU: extents, attributes and operands.
class Layer {
public:
  /// `saving`: the gates, and the cell states of all steps, are results too.
  Layer(Binder &b, Cell cell, bool saving) : b(b), cell(cell), saving(saving) {}

  LogicalResult run() {
    if (failed(readShapes()) || failed(readActivations()))
      return failure();
    SmallVector<Value> ys, lastStates, lastCells, cells, saved;
    std::string why = whyUnrolled();
    if (!why.empty() && saving)
      return b.fail() << "expected a form whose gates are saved, got " << why << "; use " << b.opType().drop_back(8)
                      << " and let the gradient be made here";
    if (!why.empty() && steps > mostUnrolled)
      return b.fail() << "expected at most " << mostUnrolled << " steps of a layer with " << why << ", got " << steps
                      << "; split the sequence";
    if (!why.empty() && steps > 1)
      emitRemark(b.loc) << b.opType() << ": unrolled over its " << steps << " steps because of " << why;
    for (int64_t direction = 0; direction < directions; ++direction) {
      Direction result = why.empty() ? recur(direction) : unroll(direction);
      ys.push_back(b.reshape(result.y, {steps, 1, batch, hidden}));
      lastStates.push_back(b.reshape(result.h, {1, batch, hidden}));
      if (result.c)
        lastCells.push_back(b.reshape(result.c, {1, batch, hidden}));
      if (result.gates)
        saved.push_back(b.reshape(result.gates, {steps, 1, batch, gates() * hidden}));
      if (result.cells)
        cells.push_back(b.reshape(result.cells, {steps, 1, batch, hidden}));
    }
    if (failed(give(ys, lastStates, lastCells)))
      return failure();
    return saving ? giveSaved(cells, saved) : success();
  }

private:
  /// The states of one direction's steps, [steps, batch, hidden] in the order of the input, and the states after its
  /// last step.
  struct Direction {
    Value y, h, c;
    Value gates, cells; ///< where they are saved: [steps, batch, gates hidden] and, of LSTM, [steps, batch, hidden]
  };
  /// Each unrolled step becomes some dozens of ops.
  static constexpr int64_t mostUnrolled = 1 << 13;

  Binder &b;
  Cell cell;
  bool saving;
  int64_t steps = 0, batch = 0, inputs = 0, hidden = 0, directions = 1;
  bool batchFirst = false, backwardFirst = false;
  FloatType element, wide;
  std::optional<double> clip;
  SmallVector<Activation> activations;

  int64_t gates() const { return cell == Cell::lstm ? 4 : cell == Cell::gru ? 3 : 1; }
  int64_t functions() const { return cell == Cell::lstm ? 3 : cell == Cell::gru ? 2 : 1; }
  bool isReverse(int64_t direction) const { return backwardFirst || direction == 1; }

  // ---- the node

  LogicalResult checkOperand(unsigned i, StringRef what, ArrayRef<int64_t> shape) {
    if (!b.has(i))
      return success();
    if (!b.in(i) || b.shape(i) != shape)
      return b.fail() << "expected " << what << " of shape [" << shape << "], got "
                      << (b.in(i) ? b.in(i).getType() : Type(b.builder.getNoneType()));
    if (i != 4 && b.element(i) != element)
      return b.fail() << "expected " << what << " of type " << element << ", got " << b.element(i);
    return success();
  }

  LogicalResult readShapes() {
    if (failed(b.needFloat(3, 3)))
      return failure();
    if (b.rank(0) != 3 || b.rank(1) != 3 || b.rank(2) != 3)
      return b.fail() << "expected an input and weights of rank 3, got " << b.in(0).getType() << ", "
                      << b.in(1).getType() << " and " << b.in(2).getType();
    StringRef direction = b.stringAttr("direction", "forward");
    if (direction != "forward" && direction != "reverse" && direction != "bidirectional")
      return b.fail() << "expected direction = forward, reverse or bidirectional, got '" << direction << "'";
    int64_t layout = b.intAttr("layout", 0);
    if (layout != 0 && layout != 1)
      return b.fail() << "expected layout = 0 or 1, got " << layout;
    directions = direction == "bidirectional" ? 2 : 1;
    backwardFirst = direction == "reverse";
    batchFirst = layout == 1;
    element = cast<FloatType>(b.element(0));
    wide = wideType(element);
    steps = b.shape(0)[batchFirst ? 1 : 0];
    batch = b.shape(0)[batchFirst ? 0 : 1];
    inputs = b.shape(0)[2];
    hidden = b.shape(2)[2];
    if (steps < 1 || hidden < 1)
      return b.fail() << "expected at least one step and a hidden size of at least 1, got " << steps << " and "
                      << hidden;
    if (int64_t stated = b.intAttr("hidden_size", hidden); stated != hidden)
      return b.fail() << "expected hidden_size = " << hidden << " as the recurrent weights have it, got " << stated;
    if (failed(b.checkShape({directions, 2 * gates(), hidden, std::max(hidden, inputs)})) ||
        failed(b.checkShape({steps, batch, gates(), hidden})))
      return failure();
    return readOperands();
  }

  LogicalResult readOperands() {
    SmallVector<int64_t> state = {directions, batch, hidden};
    if (batchFirst)
      state = {batch, directions, hidden};
    if (failed(checkOperand(1, "input weights", {directions, gates() * hidden, inputs})) ||
        failed(checkOperand(2, "recurrent weights", {directions, gates() * hidden, hidden})) ||
        failed(checkOperand(3, "biases", {directions, 2 * gates() * hidden})) ||
        failed(checkOperand(4, "sequence lengths", {batch})) || failed(checkOperand(5, "an initial state", state)))
      return failure();
    if (b.has(4) && !b.element(4).isInteger())
      return b.fail() << "expected sequence lengths of an integer type, got " << b.in(4).getType();
    if (cell == Cell::lstm && (failed(checkOperand(6, "an initial cell state", state)) ||
                               failed(checkOperand(7, "peepholes", {directions, 3 * hidden}))))
      return failure();
    clip = b.attr("clip") ? std::optional<double>(b.floatAttr("clip", 0)) : std::nullopt;
    if (clip && !(*clip > 0))
      return b.fail() << "expected a positive clip, got " << *clip;
    return success();
  }

  LogicalResult readActivations() {
    SmallVector<StringRef> names;
    if (auto given = dyn_cast_or_null<ArrayAttr>(b.attr("activations")))
      for (Attribute name : given)
        if (auto text = dyn_cast<StringAttr>(name))
          names.push_back(text.getValue());
    if (names.empty())
      for (int64_t i = 0; i < directions; ++i)
        names.append(cell == Cell::rnn   ? SmallVector<StringRef>{"Tanh"}
                     : cell == Cell::gru ? SmallVector<StringRef>{"Sigmoid", "Tanh"}
                                         : SmallVector<StringRef>{"Sigmoid", "Tanh", "Tanh"});
    if (static_cast<int64_t>(names.size()) != directions * functions())
      return b.fail() << "expected " << directions * functions() << " activations, got " << names.size();
    SmallVector<double> alphas = floats("activation_alpha"), betas = floats("activation_beta");
    // Values go to the activations that take one, in their order.
    size_t alpha = 0, beta = 0;
    auto next = [](std::optional<double> standard, ArrayRef<double> given, size_t &at) {
      return !standard ? 0 : at < given.size() ? given[at++] : *standard;
    };
    for (StringRef name : names) {
      std::optional<ActivationText> text = gateActivation(name);
      if (!text)
        return b.fail() << "expected an activation that the operator names (Relu, Tanh, Sigmoid, Affine, LeakyRelu, "
                           "ThresholdedRelu, ScaledTanh, HardSigmoid, Elu, Softsign, Softplus), got '"
                        << name << "'";
      double first = next(text->alpha, alphas, alpha), second = next(text->beta, betas, beta);
      activations.push_back({text->kind, first, second});
    }
    if (alpha < alphas.size() || beta < betas.size())
      return b.fail() << "expected activation_alpha and activation_beta for the activations that take one (" << alpha
                      << " and " << beta << "), got " << alphas.size() << " and " << betas.size();
    return success();
  }

  SmallVector<double> floats(StringRef name) {
    auto list = dyn_cast_or_null<DenseF32ArrayAttr>(b.attr(name));
    return list ? SmallVector<double>(list.asArrayRef()) : SmallVector<double>();
  }

  // ---- the form

  bool endsEarly() { return RowLengths::endEarly(b, 4, steps); }

  /// A feature of this node that mpt.recurrence lacks; empty where it computes all steps.
  std::string whyUnrolled() {
    // Behind its end, a row's states would have no bound.
    if (endsEarly() && cell == Cell::rnn &&
        llvm::any_of(activations, [](const Activation &activation) { return activation.kind == Activation::relu; }))
      return "sequence lengths with Relu";
    if (clip)
      return "clip";
    if (cell == Cell::lstm && b.has(7))
      return "peepholes";
    if (cell == Cell::lstm && b.intAttr("input_forget", 0))
      return "input_forget";
    using A = Activation;
    SmallVector<A::Kind> usual = cell == Cell::lstm  ? SmallVector<A::Kind>{A::sigmoid, A::tanh, A::tanh}
                                 : cell == Cell::gru ? SmallVector<A::Kind>{A::sigmoid, A::tanh}
                                                     : SmallVector<A::Kind>{A::tanh};
    for (auto [i, activation] : llvm::enumerate(activations))
      if (activation.kind != usual[i % usual.size()] && !(cell == Cell::rnn && activation.kind == A::relu))
        return "activations other than the default";
    return "";
  }

  // ---- parts of operands

  /// Entry `direction` of operand `i`, without that dimension.
  Value part(unsigned i, int64_t direction) { return at(b.in(i), 0, direction); }

  /// Entry `index` of dimension `axis`, without it.
  Value at(Value x, int64_t axis, int64_t index) {
    SmallVector<int64_t> shape(tensorType(x).getShape()), starts(shape.size(), 0);
    Value part = x;
    if (shape[axis] != 1) {
      starts[axis] = index;
      shape[axis] = 1;
      part = b.slice(x, starts, shape);
    }
    shape.erase(shape.begin() + axis);
    return b.reshape(part, shape);
  }

  /// Columns [from, from + count) hidden of the last dimension.
  Value blocks(Value x, int64_t from, int64_t count = 1) {
    SmallVector<int64_t> shape(tensorType(x).getShape()), starts(shape.size(), 0);
    if (shape.back() == count * hidden)
      return x;
    starts.back() = from * hidden;
    shape.back() = count * hidden;
    return b.slice(x, starts, shape);
  }

  Value row(Value vector) { return b.broadcast(vector, {batch, tensorType(vector).getDimSize(0)}, {1}); }

  /// The state before the first step: operand `i`, or zeros.
  Value initial(unsigned i, int64_t direction) {
    if (!b.has(i))
      return b.splat(RankedTensorType::get({batch, hidden}, wide), 0);
    return b.widen(at(b.in(i), batchFirst ? 1 : 0, direction));
  }

  /// a times transposed b, with the sums as they are accumulated.
  Value product(Value left, Value right) {
    auto type = RankedTensorType::get({tensorType(left).getDimSize(0), tensorType(right).getDimSize(0)}, wide);
    return MatMulOp::create(b.builder, b.loc, type, left, right, false, true, NumericsAttr());
  }

  // ---- steps

  /// Shared by the steps of one direction.
  struct Weights {
    Value inputs;          ///< [steps, batch, gates hidden]: the input's part with its biases
    Value r;               ///< [gates hidden, hidden]
    Value recurrentBias;   ///< GRU, linear_before_reset: [hidden], inside the reset; else null
    Value peepholes[3];    ///< LSTM: of i, o and f, [batch, hidden]; null without
    const Activation *act; ///< the first of this direction's
  };

  /// `rows`: where rows end early and run on.
  Weights prepare(int64_t direction, std::optional<RowLengths> rows = std::nullopt) {
    Weights w;
    w.act = &activations[direction * functions()];
    w.r = part(2, direction);
    Value x = b.in(0);
    if (batchFirst)
      x = b.transpose(x, {1, 0, 2});
    if (rows)
      x = inRunningOrder(direction, rows->within(x), *rows);
    w.inputs = product(b.reshape(x, {steps * batch, inputs}), part(1, direction));
    if (b.has(3)) {
      Value bias = b.widen(part(3, direction)), ofInput = blocks(bias, 0, gates());
      Value ofState = blocks(bias, gates(), gates());
      if (cell == Cell::gru && b.intAttr("linear_before_reset", 0)) {
        w.recurrentBias = blocks(ofState, 2);
        Value others = b.add(blocks(ofInput, 0, 2), blocks(ofState, 0, 2));
        ofInput = b.concat({others, blocks(ofInput, 2)}, 0);
      } else {
        ofInput = b.add(ofInput, ofState);
      }
      w.inputs = b.add(w.inputs, b.broadcastTo(ofInput, tensorType(w.inputs).getShape()));
    }
    w.inputs = b.reshape(w.inputs, {steps, batch, gates() * hidden});
    if (cell == Cell::lstm && b.has(7))
      for (int64_t i = 0; i < 3; ++i)
        w.peepholes[i] = row(b.widen(blocks(part(7, direction), i)));
    return w;
  }

  Value clipped(Value x) { return clip ? b.make<ClampOp>(x.getType(), x, b.f64(-*clip), b.f64(*clip)) : x; }
  Value activate(const Activation &activation, Value x) { return activation.apply(b, clipped(x)); }
  /// The state's part of gates `from` on: h in the type of GEMM operands, times their weights.
  Value recurrent(const Weights &w, Value h, int64_t from, int64_t count) {
    Value r = w.r;
    if (count != gates())
      r = b.slice(r, {from * hidden, 0}, {count * hidden, hidden});
    return product(b.cast(h, element), r);
  }
  Value complement(Value x) { return b.sub(b.splatLike(x, 1), x); }

  Value stepRnn(const Weights &w, Value x, Value h) { return activate(w.act[0], b.add(x, recurrent(w, h, 0, 1))); }

  Value stepGru(const Weights &w, Value x, Value h) {
    Value zr, candidate;
    if (b.intAttr("linear_before_reset", 0)) {
      Value all = recurrent(w, h, 0, 3);
      zr = activate(w.act[0], b.add(blocks(x, 0, 2), blocks(all, 0, 2)));
      Value inside = w.recurrentBias ? b.add(blocks(all, 2), row(w.recurrentBias)) : blocks(all, 2);
      candidate = b.mul(blocks(zr, 1), inside);
    } else {
      zr = activate(w.act[0], b.add(blocks(x, 0, 2), recurrent(w, h, 0, 2)));
      candidate = recurrent(w, b.mul(blocks(zr, 1), h), 2, 1);
    }
    Value z = blocks(zr, 0), fresh = activate(w.act[1], b.add(blocks(x, 2), candidate));
    return b.add(b.mul(complement(z), fresh), b.mul(z, h));
  }

  /// Advances `c` and returns the new state.
  Value stepLstm(const Weights &w, Value x, Value h, Value &c) {
    Value all = b.add(x, recurrent(w, h, 0, 4));
    auto gate = [&](int64_t i, Value cell) {
      Value sum = blocks(all, i);
      return activate(w.act[0], w.peepholes[i] ? b.add(sum, b.mul(w.peepholes[i], cell)) : sum);
    };
    Value i = gate(0, c), f = b.intAttr("input_forget", 0) ? complement(i) : gate(2, c);
    c = b.add(b.mul(f, c), b.mul(i, activate(w.act[1], blocks(all, 3))));
    Value o = gate(1, c);
    return b.mul(o, w.act[2].apply(b, c));
  }

  /// The rows that step `t` still belongs to, as a mask [batch, hidden]; null without lengths.
  Value within(int64_t t) {
    if (!b.has(4))
      return {};
    return b.broadcast(b.compare(Predicate::gt, b.in(4), static_cast<double>(t)), {batch, hidden}, {0});
  }

  RecurrentCell kind(const Activation &first) const {
    return cell == Cell::lstm               ? RecurrentCell::lstm
           : cell == Cell::gru              ? RecurrentCell::gru
           : first.kind == Activation::relu ? RecurrentCell::relu
                                            : RecurrentCell::tanh;
  }

  Value inRunningOrder(int64_t direction, Value x, const RowLengths &rows) {
    return isReverse(direction) ? rows.reversed(x) : x;
  }

  /// All steps as one op.
  Direction recur(int64_t direction) {
    std::optional<RowLengths> rows;
    if (endsEarly())
      rows.emplace(b, 4, steps);
    Weights w = prepare(direction, rows);
    bool reverse = isReverse(direction) && !rows;
    SmallVector<Value> more;
    if (cell == Cell::lstm)
      more.push_back(initial(6, direction));
    if (cell == Cell::gru && b.intAttr("linear_before_reset", 0))
      more.push_back(w.recurrentBias ? w.recurrentBias : b.splat(RankedTensorType::get({hidden}, wide), 0));
    Value h0 = initial(5, direction);
    auto all = RecurrenceOp::create(b.builder, b.loc, kind(w.act[0]), w.inputs, w.r, h0, more, reverse);
    int64_t last = reverse ? 0 : steps - 1;
    Direction result;
    auto ofRows = [&](Value x) {
      return b.cast(rows ? rows->within(inRunningOrder(direction, x, *rows)) : x, element);
    };
    if (saving && cell == Cell::lstm)
      result.cells = ofRows(all.getSaved()[1]);
    if (saving)
      result.gates = ofRows(blocks(all.getSaved()[0], 0, gates()));
    result.y = ofRows(all.getY());
    if (rows) {
      result.h = b.cast(rows->lastOf(all.getY(), h0), element);
      result.c = cell == Cell::lstm ? b.cast(rows->lastOf(all.getSaved()[1], more[0]), element) : Value();
      return result;
    }
    result.h = at(result.y, 0, last);
    result.c = cell == Cell::lstm ? b.cast(at(all.getSaved()[1], 0, last), element) : Value();
    return result;
  }

  /// Each step in ops of its own.
  Direction unroll(int64_t direction) {
    Weights w = prepare(direction);
    Direction result;
    SmallVector<Value> ys(steps);
    Value h = initial(5, direction), c = cell == Cell::lstm ? initial(6, direction) : Value();
    // Backward, rows shorter than the longest one begin where they end.
    for (int64_t i = 0; i < steps; ++i) {
      int64_t t = isReverse(direction) ? steps - 1 - i : i;
      Value x = at(w.inputs, 0, t), before = c, mask = within(t);
      Value next = cell == Cell::lstm ? stepLstm(w, x, h, c) : cell == Cell::gru ? stepGru(w, x, h) : stepRnn(w, x, h);
      Value y = mask ? b.select(mask, next, b.splatLike(next, 0)) : next;
      h = mask ? b.select(mask, next, h) : next;
      if (mask && c)
        c = b.select(mask, c, before);
      ys[t] = b.reshape(b.cast(y, element), {1, batch, hidden});
    }
    result.y = b.concat(ys, 0);
    result.h = b.cast(h, element);
    result.c = c ? b.cast(c, element) : Value();
    return result;
  }

  // ---- results

  Value joined(ArrayRef<Value> parts, int64_t axis) {
    return parts.size() == 1 ? parts.front() : b.concat(parts, axis);
  }

  LogicalResult give(ArrayRef<Value> ys, ArrayRef<Value> lastStates, ArrayRef<Value> lastCells) {
    auto order = [&](Value x, ArrayRef<int64_t> permutation) { return batchFirst ? b.transpose(x, permutation) : x; };
    if (b.wants(0) && failed(b.set(0, order(joined(ys, 1), {2, 0, 1, 3}))))
      return failure();
    if (b.wants(1) && failed(b.set(1, order(joined(lastStates, 0), {1, 0, 2}))))
      return failure();
    if (cell == Cell::lstm && b.wants(2))
      return b.set(2, order(joined(lastCells, 0), {1, 0, 2}));
    return success();
  }

  /// LSTM: the cell states and the gates; GRU: the gates.
  LogicalResult giveSaved(ArrayRef<Value> cells, ArrayRef<Value> saved) {
    unsigned next = 2;
    if (cell == Cell::lstm) {
      next = 4;
      if (b.wants(3) && failed(b.set(3, joined(cells, 1))))
        return failure();
    }
    return b.wants(next) ? b.set(next, joined(saved, 1)) : success();
  }
};

template <Cell cell, bool saving = false> LogicalResult importLayer(Binder &b) { return Layer(b, cell, saving).run(); }

} // namespace

void mpt::addRecurrentRules(RuleTable &t) {
  t.on("RNN", 1, importLayer<Cell::rnn>, NodeClass(NumericClass::Contraction).trains({1, 2, 3, 7}));
  t.on("LSTM", 1, importLayer<Cell::lstm>, NodeClass(NumericClass::Contraction).trains({1, 2, 3, 7}));
  t.on("GRU", 1, importLayer<Cell::gru>, NodeClass(NumericClass::Contraction).trains({1, 2, 3, 7}));
  t.onDomain("com.microsoft", "LSTMTraining", importLayer<Cell::lstm, true>,
             NodeClass(NumericClass::Contraction).trains({1, 2, 3, 7}));
  t.onDomain("com.microsoft", "GRUTraining", importLayer<Cell::gru, true>,
             NodeClass(NumericClass::Contraction).trains({1, 2, 3, 7}));
}
