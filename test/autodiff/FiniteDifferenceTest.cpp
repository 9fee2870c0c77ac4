// SPDX-License-Identifier: Apache-2.0
// Every function in cases/*.mlir is differentiated and compared with finite differences in FP64; every differentiable
// op must occur in one. Arguments are filled with distinct values in [check.low, check.high], by default [-2, 2].
#include "mpt/Autodiff/Autodiff.h"
#include "mpt/Dialect/Check/CheckDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Interfaces/NotDifferentiable.h"
#include "mpt/Lowering/Models/Models.h"
#include "mpt/Reference/Interpreter.h"
#include "mpt/Reference/Reference.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

using namespace mlir;
using namespace mpt;

namespace {

/// Steps of the five-point stencil, whose error is of fourth order.
constexpr double stepSize = 1e-3;
constexpr double tolerance = 1e-7;

bool isFloat(Value value) { return isa<FloatType>(getElementTypeOrSelf(value.getType())); }

/// Shuffled cells of the range with up to a quarter cell of jitter: values differ, and none is near the middle.
Tensor fill(RankedTensorType type, double low, double high, std::mt19937_64 &random) {
  Tensor tensor(type);
  int64_t count = tensor.size(), cells = count + count % 2;
  std::vector<int64_t> order(cells);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  std::uniform_real_distribution<double> jitter(-0.25, 0.25);
  for (int64_t i = 0; i < count; ++i)
    tensor.setNumber(i, low + (high - low) * (order[i] + 0.5 + jitter(random)) / cells);
  return tensor;
}

/// Makes `function` return the sum of all elements of its float results, each times a fixed weight.
Value reduceToScalar(func::FuncOp function, std::mt19937_64 &random) {
  Operation *end = function.getBody().front().getTerminator();
  OpBuilder builder(end);
  GraphBuilder b(builder, function.getLoc());
  Value total;
  for (Value result : end->getOperands()) {
    if (!isFloat(result))
      continue;
    Value wide = b.cast(result, builder.getF64Type());
    Tensor weights = fill(tensorType(wide), 0.5, 1.5, random);
    Value weighted = b.mul(wide, b.constant(DenseElementsAttr::get(tensorType(wide), weights.reals())));
    Value sum = b.sum(weighted, axisRange(0, tensorType(result).getRank()));
    total = total ? b.add(total, sum) : sum;
  }
  return total;
}

void returnValues(func::FuncOp function, ValueRange values) {
  function.getBody().front().getTerminator()->setOperands(values);
  function.setType(FunctionType::get(function.getContext(), function.getArgumentTypes(), values.getTypes()));
  function.setResAttrsAttr(ArrayAttr());
}

class Case {
public:
  Case(ModuleOp module, func::FuncOp function, std::string name)
      : module(module), value(function), name(std::move(name)) {}

  /// Number of elements whose gradient is off, or 1 when the case cannot run.
  int64_t run() {
    random.seed(seedOf(value.getName()));
    gradient = value.clone();
    gradient.setName((value.getName() + ".gradient").str());
    module.push_back(gradient);
    std::mt19937_64 weights = random;
    Value sum = reduceToScalar(value, weights);
    weights = random;
    Value loss = reduceToScalar(gradient, weights);
    returnValues(value, sum);

    SmallVector<Value> wrt;
    for (BlockArgument argument : gradient.getArguments())
      if (isFloat(argument))
        wrt.push_back(argument);
    OpBuilder builder(gradient.getBody().front().getTerminator());
    auto built = differentiate(gradient, loss, wrt, builder);
    if (failed(built))
      return fails("no gradient");
    for (auto [value, result] : llvm::zip_equal(wrt, *built))
      if (!result)
        result = GraphBuilder(builder, value.getLoc()).splatLike(value, 0.0);
    returnValues(gradient, *built);
    return failed(verify(gradient)) ? fails("invalid gradient") : compare();
  }

private:
  /// Independent of the standard library's hash.
  static uint64_t seedOf(StringRef text) {
    uint64_t seed = 1469598103934665603u;
    for (char c : text)
      seed = (seed ^ static_cast<unsigned char>(c)) * 1099511628211u;
    return seed;
  }

  int64_t fails(const Twine &why) {
    llvm::errs() << "FAIL " << name << ": " << why << "\n";
    return 1;
  }

  double bound(unsigned argument, StringRef attribute, double otherwise) {
    auto number = value.getArgAttrOfType<FloatAttr>(argument, attribute);
    return number ? number.getValueAsDouble() : otherwise;
  }

  FailureOr<double> evaluate(ArrayRef<Tensor> inputs) {
    auto results = Interpreter(module, EvaluationMode::Oracle).call(value, inputs);
    if (failed(results))
      return failure();
    return results->front().number(0);
  }

  int64_t compare() {
    SmallVector<Tensor> inputs;
    for (auto [i, argument] : llvm::enumerate(value.getArguments()))
      inputs.push_back(fill(cast<RankedTensorType>(argument.getType()),
                            bound(i, check::CheckDialect::LowAttrHelper::getNameStr(), -2.0),
                            bound(i, check::CheckDialect::HighAttrHelper::getNameStr(), 2.0), random));
    auto gradients = Interpreter(module, EvaluationMode::Oracle).call(gradient, inputs);
    if (failed(gradients))
      return fails("the gradient cannot be interpreted");
    int64_t wrong = 0, next = 0;
    for (auto [i, argument] : llvm::enumerate(value.getArguments())) {
      if (!isFloat(argument))
        continue;
      const Tensor &got = (*gradients)[next++];
      for (int64_t element = 0; element < got.size() && wrong < 5; ++element) {
        FailureOr<double> want = difference(inputs, i, element);
        if (failed(want))
          return fails("the function cannot be interpreted");
        if (!(std::abs(*want - got.number(element)) <= tolerance * (1.0 + std::abs(*want))))
          wrong += fails("argument " + Twine(i) + " element " + Twine(element) + ": expected " + std::to_string(*want) +
                         ", got " + std::to_string(got.number(element)));
      }
    }
    return wrong;
  }

  FailureOr<double> difference(SmallVector<Tensor> &inputs, unsigned argument, int64_t element) {
    double x = inputs[argument].number(element), values[4];
    constexpr int offsets[] = {-2, -1, 1, 2};
    for (auto [offset, result] : llvm::zip_equal(offsets, values)) {
      inputs[argument].setNumber(element, x + offset * stepSize);
      FailureOr<double> at = evaluate(inputs);
      if (failed(at))
        return failure();
      result = *at;
    }
    inputs[argument].setNumber(element, x);
    return (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * stepSize);
  }

  ModuleOp module;
  func::FuncOp value, gradient;
  std::string name;
  std::mt19937_64 random;
};

/// Differentiable ops, with a rule or by decomposition, that no case holds. Train ops come after differentiation.
int64_t reportMissing(MLIRContext &context, const llvm::StringSet<> &seen) {
  int64_t missing = 0;
  for (RegisteredOperationName op : context.getRegisteredOperations())
    if (op.getDialectNamespace() == MPTDialect::getDialectNamespace() && !op.hasInterface<NotDifferentiable>() &&
        (op.hasInterface<Differentiable>() || op.hasInterface<Decomposable>()) && !seen.contains(op.getStringRef())) {
      llvm::errs() << "FAIL no case for " << op.getStringRef() << ": add one to test/autodiff/cases\n";
      ++missing;
    }
  return missing;
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 2) {
    llvm::errs() << "usage: " << argv[0] << " FOLDER [CASE]\n";
    return 2;
  }
  DialectRegistry registry;
  registry.insert<func::FuncDialect, MPTDialect, train::TrainDialect, check::CheckDialect>();
  registerAutodiffModels(registry);
  registerReferenceModels(registry);
  registerLoopLoweringModels(registry); // composites are interpreted through their decompositions
  MLIRContext context(registry);
  context.loadAllAvailableDialects();

  std::error_code error;
  std::vector<std::string> files;
  for (llvm::sys::fs::directory_iterator it(argv[1], error), end; it != end && !error; it.increment(error))
    files.push_back(it->path());
  llvm::sort(files);
  llvm::StringSet<> seen;
  int64_t count = 0, failures = 0;
  for (const std::string &file : files) {
    OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(file, &context);
    if (!module) {
      ++failures;
      continue;
    }
    module->walk([&](Operation *op) { seen.insert(op->getName().getStringRef()); });
    for (auto function : llvm::to_vector(module->getOps<func::FuncOp>())) {
      if (argc > 2 && function.getName() != argv[2])
        continue;
      std::string name = (llvm::sys::path::stem(file) + ":" + function.getName()).str();
      ++count;
      failures += Case(*module, function, name).run() != 0;
    }
  }
  if (argc == 2)
    failures += reportMissing(context, seen);
  llvm::outs() << count << " cases, " << failures << " failures\n";
  return failures != 0 || count == 0;
}
