// SPDX-License-Identifier: Apache-2.0
// Scan: unrolled over the extent of its scan inputs.
#include "Scan.h"

#include "Bodies.h"

using namespace mlir;
using namespace mpt;

namespace {

/// Scan, unrolled over the extent of its scan inputs. Version 8 has a batch in front, whose elements scan by
/// themselves.
class Scan {
public:
  explicit Scan(Binder &b) : b(b), body(b), isBatched(b.version() < 9), first(isBatched ? 1 : 0) {}

  LogicalResult run() {
    Block *block = body.block("body");
    numInputs = b.intAttr("num_scan_inputs", 0);
    if (isBatched && b.has(0))
      return b.fail() << "expected no sequence_lens, got some; convert the model to opset 9, where there are none";
    if (!block || numInputs < 1 || numInputs > b.operandCount() - first || failed(needOperands()))
      return b.fail() << "expected a body and at least one scan input, got " << numInputs;
    numStates = b.operandCount() - first - numInputs;
    numOutputs = static_cast<int64_t>(block->getTerminator()->getNumOperands()) - numStates;
    if (numOutputs < 0)
      return b.fail() << "expected a body with " << numStates << " states, got fewer results";
    if (failed(read("scan_input_axes", numInputs, inputAxes)) ||
        failed(read(isBatched ? "directions" : "scan_input_directions", numInputs, inputReversed)) ||
        failed(read("scan_output_axes", numOutputs, outputAxes)) ||
        failed(read("scan_output_directions", numOutputs, outputReversed)))
      return failure();
    return isBatched ? scanBatch(*block) : scanOnce(*block);
  }

private:
  Binder &b;
  Body body;
  bool isBatched;
  unsigned first; ///< operand that is a state
  int64_t numInputs = 0, numStates = 0, numOutputs = 0, steps = 0;
  SmallVector<int64_t> inputAxes, inputReversed, outputAxes, outputReversed;
  SmallVector<Value> inputs;

  LogicalResult needOperands() {
    for (unsigned i = first; i < b.operandCount(); ++i)
      if (!b.has(i) || !b.in(i) || (isBatched && b.rank(i) < 1))
        return failure();
    return success();
  }

  LogicalResult read(StringRef name, int64_t count, SmallVector<int64_t> &values) {
    values = b.intsAttr(name, SmallVector<int64_t>(count, 0));
    if (static_cast<int64_t>(values.size()) != count)
      return b.fail() << "expected " << count << " numbers as " << name << ", got " << values.size();
    return success();
  }

  LogicalResult readSteps() {
    for (auto [i, input] : llvm::enumerate(inputs)) {
      FailureOr<int64_t> axis = b.axis(inputAxes[i], tensorType(input).getRank());
      if (failed(axis))
        return failure();
      inputAxes[i] = *axis;
      int64_t extent = tensorType(input).getDimSize(*axis);
      if (i == 0)
        steps = extent;
      if (extent != steps || steps < 1)
        return b.fail() << "expected scan inputs of one number of steps, at least 1, got " << steps << " and "
                        << extent;
    }
    return success();
  }

  /// `x` at a place of an axis, without that axis.
  Value sliced(Value x, int64_t axis, int64_t at) {
    SmallVector<int64_t> shape(tensorType(x).getShape()), starts(shape.size(), 0);
    starts[axis] = at;
    shape[axis] = 1;
    Value part = b.slice(x, starts, shape);
    shape.erase(shape.begin() + axis);
    return b.reshape(part, shape);
  }

  /// The last states, then the scan outputs, null where nothing uses them.
  FailureOr<SmallVector<Carried>> unroll(Block &block, SmallVector<Carried> states) {
    SmallVector<SmallVector<Value>> outputs(numOutputs);
    if (failed(readSteps()))
      return failure();
    for (int64_t step = 0; step < steps; ++step) {
      SmallVector<Carried> arguments(states);
      for (auto [i, input] : llvm::enumerate(inputs))
        arguments.push_back({sliced(input, inputAxes[i], inputReversed[i] ? steps - 1 - step : step), std::nullopt});
      FailureOr<SmallVector<Carried>> results = body.inlined(block, arguments);
      if (failed(results))
        return failure();
      states.assign(results->begin(), results->begin() + numStates);
      for (int64_t i = 0; i < numOutputs; ++i) {
        if (!(*results)[numStates + i].tensor)
          return b.fail() << "expected tensors as scan outputs, got a sequence";
        outputs[i].push_back((*results)[numStates + i].tensor);
      }
    }
    for (int64_t i = 0; i < numOutputs; ++i) {
      FailureOr<Value> joined = Value();
      if (b.wants(numStates + i))
        joined = stacked(b, outputs[i], outputAxes[i], outputReversed[i]);
      if (failed(joined))
        return failure();
      states.push_back({*joined, std::nullopt});
    }
    return states;
  }

  LogicalResult scanOnce(Block &block) {
    SmallVector<Carried> states;
    for (int64_t i = 0; i < numStates; ++i)
      states.push_back(body.operand(i));
    for (int64_t i = 0; i < numInputs; ++i)
      inputs.push_back(b.in(numStates + i));
    FailureOr<SmallVector<Carried>> results = unroll(block, states);
    if (failed(results))
      return failure();
    for (auto [i, result] : llvm::enumerate(*results))
      if (failed(body.give(i, result)))
        return failure();
    return success();
  }

  LogicalResult scanBatch(Block &block) {
    int64_t batch = b.shape(first)[0];
    SmallVector<SmallVector<Value>> parts(numStates + numOutputs);
    for (unsigned i = first; i < b.operandCount(); ++i)
      if (b.shape(i)[0] != batch || batch < 1)
        return b.fail() << "expected a batch of one extent, at least 1, got " << batch << " and " << b.shape(i)[0];
    for (int64_t at = 0; at < batch; ++at) {
      SmallVector<Carried> states;
      inputs.clear();
      for (int64_t i = 0; i < numStates; ++i)
        states.push_back({sliced(b.in(first + i), 0, at), std::nullopt});
      for (int64_t i = 0; i < numInputs; ++i)
        inputs.push_back(sliced(b.in(first + numStates + i), 0, at));
      FailureOr<SmallVector<Carried>> results = unroll(block, states);
      if (failed(results))
        return failure();
      for (auto [i, result] : llvm::enumerate(*results)) {
        if (b.wants(i) && !result.tensor)
          return b.fail() << "expected tensors as results, got a sequence";
        parts[i].push_back(result.tensor);
      }
    }
    for (auto [i, list] : llvm::enumerate(parts)) {
      if (!b.wants(i))
        continue;
      FailureOr<Value> joined = stacked(b, list, 0, false);
      if (failed(joined) || failed(b.set(i, *joined)))
        return failure();
    }
    return success();
  }
};

} // namespace

LogicalResult mpt::importScan(Binder &b) { return Scan(b).run(); }
