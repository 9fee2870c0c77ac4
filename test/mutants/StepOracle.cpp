// SPDX-License-Identifier: Apache-2.0
// Runs of a step in the reference interpreter, and how two modules' runs compare.
#include "StepOracle.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Reference/Interpreter.h"

#include "mlir/IR/Diagnostics.h"

#include "llvm/Support/FormatVariadic.h"

#include <cmath>

using namespace mlir;
using namespace mpt;
using namespace mpt::mutants;
using train::TrainDialect;

namespace {

/// Makes one value of one call infinite.
class Overflow : public InterpreterObserver {
public:
  explicit Overflow(Value at) : at(at) {}
  void adjust(Operation *op, InterpreterFrame &frame) override {
    if (!isOn || !at || op != at.getDefiningOp())
      return;
    Tensor value = frame.get(at);
    value.setNumber(0, INFINITY);
    frame.set(at, value);
  }
  void computed(Operation *, const InterpreterFrame &) override {}
  bool isOn = false;

private:
  Value at;
};

constexpr size_t maxOverflows = 12;

/// The gradient as the backward pass makes it, before its scale and its rounding go, so that whoever reads it there
/// sees its overflow as well.
Value beforeUnscaling(Value gradient) {
  while (Operation *op = gradient.getDefiningOp()) {
    StringRef name = op->getName().getStringRef();
    if (name != "train.gradient" && name != "train.unscale" && name != "train.rescale" && name != "mpt.cast")
      break;
    gradient = op->getOperand(0);
  }
  return gradient;
}

class Run {
public:
  explicit Run(ModuleOp module, EvaluationMode mode = EvaluationMode::Oracle, bool poisons = false)
      : module(module), interpreter(module, mode), poisons(poisons) {}

  /// `scale` is the first loss scale; `at` overflows in the second update.
  std::optional<Trace> operator()(double scale, Value at) {
    if (failed(interpreter.initialize()))
      return std::nullopt;
    for (auto &[name, value] : interpreter.state()) {
      StringRef key(name);
      if (key.starts_with(TrainDialect::kLossScale))
        value.setNumber(0, scale);
      if (key.starts_with(TrainDialect::kGoodSteps))
        value.setNumber(0, 1998); // the second good step raises the scale
    }
    Overflow overflow(at);
    interpreter.observe(&overflow);
    Trace trace;
    for (int update = 0; update < 3; ++update)
      for (StringRef name : {"accumulate", "step"}) {
        auto function = module.lookupSymbol<func::FuncOp>(name);
        if (!function)
          continue;
        overflow.isOn = update == 1;
        if (failed(call(function, update, trace)))
          return std::nullopt;
      }
    return trace;
  }

private:
  LogicalResult call(func::FuncOp function, int update, Trace &trace) {
    SmallVector<Tensor> inputs;
    for (auto [i, type] : llvm::enumerate(function.getArgumentTypes()))
      inputs.push_back(input(cast<RankedTensorType>(type), update * 7 + i, argumentName(function, i)));
    if (poisons && update == 1)
      for (Tensor &tensor : inputs)
        if (tensor.isFloat() && tensor.size() > 1)
          tensor.setNumber(0, INFINITY);
    FailureOr<SmallVector<Tensor>> results = interpreter.call(function, inputs);
    if (failed(results))
      return failure();
    auto &values = trace.emplace_back();
    for (auto [i, result] : llvm::enumerate(*results))
      values["result " + resultName(function, i)] = numbers(result);
    for (auto &[name, value] : interpreter.state())
      values[name] = numbers(value);
    return success();
  }

  static Tensor input(RankedTensorType type, unsigned seed, StringRef name) {
    Tensor tensor(type);
    for (int64_t i = 0; i < tensor.size(); ++i)
      tensor.setNumber(i, name == "learning_rate" ? 0.125
                          : tensor.isFloat()      ? std::sin(1.0 + 0.7 * static_cast<double>(i) + 3.1 * seed)
                                                  : static_cast<double>((i + seed) % 2));
    return tensor;
  }

  static std::vector<double> numbers(const Tensor &tensor) {
    std::vector<double> list;
    for (int64_t i = 0; i < tensor.size(); ++i)
      list.push_back(tensor.number(i));
    return list;
  }

  ModuleOp module;
  Interpreter interpreter;
  bool poisons;
};

/// A constant that scales the loss is set as the state would be.
void setConstantScales(ModuleOp module, double scale) {
  module.walk([&](train::ScaleLossOp loss) {
    auto constant = loss.getScale().getDefiningOp<ConstantOp>();
    if (constant && !hasAttr<MPTDialect::SeedAttrHelper>(loss))
      constant.setValueAttr(DenseElementsAttr::get(constant.getType(), APFloat(static_cast<float>(scale))));
  });
}

bool isAbout(StringRef name, ArrayRef<std::string> names) { return llvm::is_contained(names, name); }

/// Equal but for the order in which FP64 sums; `leaves` names values that are not compared.
bool same(const std::map<std::string, std::vector<double>> &a, const std::map<std::string, std::vector<double>> &b,
          ArrayRef<std::string> leaves = {}) {
  for (const auto &[name, list] : a) {
    auto other = b.find(name);
    if (isAbout(name, leaves))
      continue;
    if (other == b.end() || other->second.size() != list.size())
      return false;
    double size = 0;
    for (double value : list)
      size = std::isfinite(value) ? std::max(size, std::abs(value)) : size;
    for (auto [x, y] : llvm::zip_equal(list, other->second))
      if (!(x == y || (std::isnan(x) && std::isnan(y)) || std::abs(x - y) <= 1e-9 * size))
        return false;
  }
  return true;
}
bool same(const Trace &a, const Trace &b, ArrayRef<std::string> leaves = {}) {
  return a.size() == b.size() && llvm::all_of(llvm::zip_equal(a, b), [&](const auto &pair) {
           return same(std::get<0>(pair), std::get<1>(pair), leaves);
         });
}

/// Loss and states are finite, as far as they are numbers of the model.
bool isFinite(const std::map<std::string, std::vector<double>> &values) {
  return llvm::all_of(values, [](const auto &entry) {
    return StringRef(entry.first).contains("accumulator") ||
           llvm::all_of(entry.second, [](double value) { return std::isfinite(value); });
  });
}

bool skips(const std::map<std::string, std::vector<double>> &values) {
  auto found = values.find("result skipped");
  return found != values.end() && found->second.front() != 0;
}

std::map<std::string, std::vector<double>> only(const std::map<std::string, std::vector<double>> &all, bool moves,
                                                ArrayRef<std::string> always) {
  std::map<std::string, std::vector<double>> kept;
  for (const auto &[name, list] : all)
    if (!StringRef(name).starts_with("result ") && isAbout(name, always) == moves)
      kept[name] = list;
  return kept;
}

} // namespace

Behaviour mutants::behaviourOf(ModuleOp original) {
  OwningOpRef<ModuleOp> module(original.clone());
  ScopedDiagnosticHandler quiet(original.getContext(), [](Diagnostic &) { return success(); });
  Behaviour behaviour;
  for (auto state : module->getOps<train::StateOp>())
    if (state.getRole() == train::Role::scale || state.getRole() == train::Role::rng ||
        state.getRole() == train::Role::accumulator)
      behaviour.always.push_back(state.getSymName().str());
  auto run = [&](double scale, Value at, std::vector<Trace> &traces) {
    std::optional<Trace> trace = Run(*module)(scale, at);
    behaviour.ran &= trace.has_value();
    traces.push_back(trace.value_or(Trace()));
  };
  for (double scale : {4096.0, 32.0}) {
    setConstantScales(*module, scale);
    run(scale, Value(), behaviour.scales);
  }
  for (auto function : module->getOps<func::FuncOp>()) {
    std::map<std::string, Operation *> places;
    for (Operation &op : function.getBody().front()) {
      if (auto gradient = dyn_cast<train::GradientOp>(op))
        places.emplace(gradient.getParameter().str(), &op);
      if (hasAttr<MPTDialect::CheckedAttrHelper>(&op))
        places.emplace("checked " + std::to_string(places.size()), &op);
    }
    for (auto [name, op] : places)
      if (function.getSymName() != "gradients" && behaviour.overflows.size() < maxOverflows)
        run(32.0, beforeUnscaling(op->getResult(0)), behaviour.overflows);
  }
  return behaviour;
}

/// In values that are no scales themselves.
static bool dependsOnScale(const Behaviour &mutant) {
  std::vector<std::string> about = {"result loss_scale", TrainDialect::kAmaxHistory.str(),
                                    TrainDialect::kTensorScales.str()};
  llvm::append_range(about, mutant.always);
  return !same(mutant.scales[0], mutant.scales[1], about);
}

Verdict mutants::compareUnderScale(const Behaviour &original, const Behaviour &mutant) {
  if (!mutant.ran || dependsOnScale(mutant))
    return Verdict::wrong;
  bool equal = same(original.scales[0], mutant.scales[0]) && same(original.scales[1], mutant.scales[1]);
  return equal ? Verdict::equivalent : Verdict::legitimate;
}

Verdict mutants::compare(const Behaviour &original, const Behaviour &mutant) {
  if (!mutant.ran || mutant.overflows.size() != original.overflows.size())
    return Verdict::wrong;
  bool equal = true;
  for (auto [a, b] : llvm::zip_equal(original.scales, mutant.scales))
    equal &= same(a, b);
  for (auto [a, b] : llvm::zip_equal(original.overflows, mutant.overflows))
    equal &= same(a, b);
  if (equal)
    return Verdict::equivalent;
  if (dependsOnScale(mutant))
    return Verdict::wrong;
  // Scales move as they did, whatever else the step computes; until it computes nothing any more, or overflows
  // elsewhere.
  auto scalesMove = [&](const Trace &a, const Trace &b) {
    for (auto [x, y] : llvm::zip_equal(a, b)) {
      if (isFinite(x) != isFinite(y) || skips(x) != skips(y))
        return true;
      for (const auto &[name, list] : x)
        if (StringRef(name).starts_with("mpt.") && isAbout(name, mutant.always) && y.count(name) &&
            !same({{name, list}}, {{name, y.at(name)}}))
          return false;
    }
    return true;
  };
  for (auto [a, b] : llvm::zip_equal(original.scales, mutant.scales))
    if (a.size() != b.size() || !scalesMove(a, b))
      return Verdict::wrong;
  for (auto [a, b] : llvm::zip_equal(original.overflows, mutant.overflows)) {
    if (a.size() != b.size() || !scalesMove(a, b))
      return Verdict::wrong;
    // The last call of the second update is the one that is skipped: it leaves the states of the call before it, or
    // those of parameters whose gradients are not finite.
    size_t calls = b.size() / 3, skipped = 2 * calls - 1;
    for (const auto &[name, list] : only(a[skipped], false, mutant.always))
      if (same({{name, list}}, a[calls - 1]) &&
          !(b[skipped].count(name) && same({{name, b[skipped].at(name)}}, b[calls - 1])))
        return Verdict::wrong;
  }
  return Verdict::legitimate;
}

std::optional<PhaseRuns> mutants::phaseRunsOf(ModuleOp module) {
  PhaseRuns runs;
  auto add = [&](std::optional<Trace> trace, std::vector<Trace> &traces) {
    if (trace)
      traces.push_back(std::move(*trace));
    return trace.has_value();
  };
  for (double scale : {4096.0, 32.0})
    if (!add(Run(module)(scale, Value()), runs.scales))
      return std::nullopt;
  for (double scale : {0x1p24, 1024.0})
    for (bool poisons : {false, true})
      if (!add(Run(module, EvaluationMode::Exact, poisons)(scale, Value()), runs.exact))
        return std::nullopt;
  return runs;
}

/// The first number that `equal` takes for another one: "run 0, call 2, NAME: 1 and 2".
static std::string difference(ArrayRef<Trace> a, ArrayRef<Trace> b,
                              llvm::function_ref<bool(double, double, double)> equal) {
  for (size_t run = 0; run < a.size(); ++run)
    for (size_t call = 0; call < a[run].size(); ++call)
      for (const auto &[name, list] : a[run][call]) {
        auto other = b[run][call].find(name);
        std::string where = llvm::formatv("run {0}, call {1}, {2}", run, call, name).str();
        if (other == b[run][call].end() || list.size() != other->second.size())
          return where;
        double size = 0;
        for (double value : list)
          size = std::isfinite(value) ? std::max(size, std::abs(value)) : size;
        for (auto [x, y] : llvm::zip_equal(list, other->second))
          if (!(x == y || (std::isnan(x) && std::isnan(y)) || equal(x, y, size)))
            return where + llvm::formatv(": {0:e12} and {1:e12}", x, y).str();
      }
  return "";
}

std::string mutants::differenceUnderScale(const PhaseRuns &a, const PhaseRuns &b) {
  for (auto [x, y] : llvm::zip_equal(a.exact, b.exact))
    for (auto [u, v] : llvm::zip_equal(x, y))
      if (skips(u) != skips(v))
        return "another step is skipped";
  // Scales of tensors are FP32 even here. A gradient that is 0 but for FP64's last bits, as a bias's before batch
  // normalization, is 0.
  return difference(a.scales, b.scales,
                    [](double x, double y, double size) { return std::abs(x - y) <= 1e-7 * std::max(size, 1e-5); });
}

std::string mutants::differenceOfBits(const PhaseRuns &a, const PhaseRuns &b) {
  return difference(a.exact, b.exact, [](double, double, double) { return false; });
}
