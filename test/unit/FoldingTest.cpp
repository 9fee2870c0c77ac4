// SPDX-License-Identifier: Apache-2.0
// Import's constant folding and the interpreter are bitwise identical: each op of the conformance cases, in three float
// types, on random operands and on uniform ones. Every op that folding may meet has to occur.
#include "mpt/Dialect/Check/CheckDialect.h"
#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Driver/Registration.h"
#include "mpt/Evaluation/Constants.h"
#include "mpt/Import/Fold.h"
#include "mpt/Reference/Interpreter.h"

#include "mlir/IR/IRMapping.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"

#include <cmath>
#include <random>

using namespace mlir;
using namespace mpt;

namespace {

/// Random numbers in the argument's range, as the conformance suite draws them: integers below check.high.
Tensor fill(func::FuncOp function, unsigned argument, std::mt19937_64 &random) {
  auto bound = [&](StringRef name, double otherwise) {
    auto value = function.getArgAttrOfType<FloatAttr>(argument, name);
    return value ? value.getValueAsDouble() : otherwise;
  };
  Tensor tensor(cast<RankedTensorType>(function.getArgument(argument).getType()));
  double low = bound(check::CheckDialect::LowAttrHelper::getNameStr(), tensor.isFloat() ? -2 : 0),
         high = bound(check::CheckDialect::HighAttrHelper::getNameStr(), 2);
  std::uniform_real_distribution<double> numbers(low, high);
  for (int64_t i = 0; i < tensor.size(); ++i)
    tensor.setNumber(i, tensor.isFloat() ? numbers(random) : std::floor(numbers(random)));
  tensor.normalize();
  return tensor;
}

/// `tensor` with its first element everywhere.
Tensor uniform(const Tensor &tensor) {
  Tensor result = tensor;
  for (int64_t i = 0; i < result.size(); ++i)
    result.isFloat() ? void(result.writeReals()[i] = tensor.reals()[0])
                     : void(result.writeInts()[i] = tensor.ints()[0]);
  return result;
}

/// Folds the ops of a running function, and compares with the results of the op's rule.
class Comparison : public InterpreterObserver {
public:
  void computed(Operation *op, const InterpreterFrame &frame) override {
    if (op->getNumResults() != 1 || op->getNumRegions() != 0 || op->hasTrait<OpTrait::ConstantLike>())
      return;
    SmallVector<Tensor> operands, uniforms;
    for (Value operand : op->getOperands()) {
      operands.push_back(frame.get(operand));
      uniforms.push_back(operands.back().size() ? uniform(operands.back()) : operands.back());
    }
    compare(op, operands);
    compare(op, uniforms);
  }

  /// Ops that were folded, and ops that are left to run time because their work is more than linear.
  llvm::StringSet<> folded, costly;
  int64_t failures = 0, comparisons = 0;

private:
  void compare(Operation *op, ArrayRef<Tensor> operands) {
    Block scratch;
    OpBuilder builder(op->getContext()); // the block has no region to ask
    builder.setInsertionPointToEnd(&scratch);
    GraphBuilder b(builder, op->getLoc());
    IRMapping constants;
    SmallVector<Value> values;
    EvaluationState state;
    InterpreterFrame frame(EvaluationMode::Exact, state);
    for (const Tensor &operand : operands) {
      values.push_back(b.constant(operand.toAttribute()));
      frame.set(values.back(), operand);
    }
    Operation *copy = builder.clone(*op);
    copy->setOperands(values);
    ElementsAttr constant = foldToConstant(copy);
    StringRef name = op->getName().getStringRef();
    if (!constant) {
      if (accessPatternOf(copy) == AccessPattern::Windows)
        costly.insert(name);
      return;
    }
    folded.insert(name);
    ++comparisons;
    FailureOr<Tensor> got = Tensor::fromAttribute(constant, op->getLoc());
    if (failed(got) || failed(cast<Interpretable>(copy).interpret(frame))) {
      fails(name, "folded, but not interpreted");
      return;
    }
    const Tensor &want = frame.get(copy->getResult(0));
    for (int64_t i = 0; i < want.size(); ++i)
      // A NaN's sign and payload mean nothing: an attribute of 8-bit floats keeps neither.
      if (got->bits(i) != want.bits(i) && !(std::isnan(got->number(i)) && std::isnan(want.number(i)))) {
        fails(name, "element " + Twine(i) + ": folding gives " + std::to_string(got->number(i)) + ", the interpreter " +
                        std::to_string(want.number(i)));
        return;
      }
  }

  void fails(StringRef name, const Twine &why) {
    llvm::errs() << "FAIL " << name << ": " << why << "\n";
    ++failures;
  }
};

/// Runs the functions of one file with its FP64 tensors as tensors of `element`.
bool runFile(StringRef path, StringRef element, MLIRContext &context, Comparison &comparison) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  if (!buffer)
    return false;
  std::string text = (*buffer)->getBuffer().str();
  for (size_t at = text.find("f64>"); at != std::string::npos; at = text.find("f64>", at + 1))
    text.replace(at, 3, element);
  // A case that says its types itself may not hold in others.
  ScopedDiagnosticHandler quiet(&context, [&](Diagnostic &) { return success(element != "f64"); });
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(text, &context);
  if (!module)
    return element != "f64";
  std::mt19937_64 random(7);
  for (auto function : module->getOps<func::FuncOp>()) {
    if (function.isExternal())
      continue;
    SmallVector<Tensor> inputs;
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      inputs.push_back(fill(function, i, random));
    Interpreter interpreter(*module);
    interpreter.observe(&comparison);
    if (failed(interpreter.initialize()) || failed(interpreter.call(function, inputs)))
      return false;
  }
  return true;
}

} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  registerAll(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  Comparison comparison;
  for (int i = 1; i < argc; ++i) {
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(argv[i], error), end; it != end && !error; it.increment(error))
      for (StringRef element : {"f64", "f32", "bf16"})
        if (StringRef(it->path()).ends_with(".mlir") && !runFile(it->path(), element, context, comparison)) {
          llvm::errs() << "FAIL " << it->path() << " in " << element << ": cannot be interpreted\n";
          ++comparison.failures;
        }
  }
  for (RegisteredOperationName op : context.getRegisteredOperations()) {
    StringRef name = op.getStringRef();
    if (op.getDialectNamespace() != MPTDialect::getDialectNamespace() || !op.hasInterface<Interpretable>() ||
        !op.hasTrait<OpTrait::OneResult>() || !op.hasTrait<OpTrait::ZeroRegions>() ||
        op.hasTrait<OpTrait::ConstantLike>() || comparison.folded.contains(name) || comparison.costly.contains(name))
      continue;
    llvm::errs() << "FAIL " << name << " was never folded: add a case to test/cts/cases or test/autodiff/cases\n";
    ++comparison.failures;
  }
  llvm::outs() << comparison.folded.size() << " ops folded, " << comparison.comparisons << " comparisons, "
               << comparison.failures << " failures\n";
  return comparison.failures || comparison.folded.size() < 60;
}
