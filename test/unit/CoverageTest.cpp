// SPDX-License-Identifier: Apache-2.0
// Walks every registered core and train op: each needs a meaning, a gradient or a reason for none, a scale rule
// (library calls too), a test, and an accumulator where it sums. The same walk prints docs/generated/op-status.md with
// --op-status; --sums names the ops that sum.
#include "FindSums.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/ONNX/OperatorClasses.h"
#include "mpt/Dialect/ONNX/Schemas.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Driver/Registration.h"
#include "mpt/Import/Import.h"
#include "mpt/Interfaces/Accumulates.h"
#include "mpt/Interfaces/GradientScale.h"
#include "mpt/Interfaces/MeaningFlow.h"
#include "mpt/Interfaces/NotDifferentiable.h"

#include "onnx/defs/schema.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

#include <set>

using namespace mlir;

namespace {

std::string readText(const llvm::Twine &path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// Whether `text` has `name` as a whole word of op syntax.
bool mentions(StringRef text, StringRef name) {
  for (size_t at = text.find(name); at != StringRef::npos; at = text.find(name, at + 1)) {
    char next = at + name.size() < text.size() ? text[at + name.size()] : ' ';
    if (!isalnum(next) && next != '_' && next != '.')
      return true;
  }
  return false;
}

class Coverage {
public:
  Coverage(MLIRContext &context, std::string root) : context(context), root(std::move(root)) {
    tests = readFolder("test/evaluation");
    cases = readFolder("test/cts/cases") + readFolder("test/autodiff/cases");
    std::error_code error;
    for (llvm::sys::fs::directory_iterator it(this->root + "/include/mpt/Dialect/MPT", error), end; it != end && !error;
         it.increment(error))
      if (StringRef(it->path()).ends_with("Ops.td"))
        families[llvm::sys::path::stem(it->path()).drop_back(3).str()] = readText(it->path());
  }

  /// Ops in order of their names, without terminators and declarations, which are not executed by themselves.
  std::vector<RegisteredOperationName> ops(StringRef dialect) {
    std::vector<RegisteredOperationName> result;
    for (RegisteredOperationName name : context.getRegisteredOperations())
      if (name.getDialectNamespace() == dialect && !name.hasTrait<OpTrait::IsTerminator>() &&
          !name.hasInterface<SymbolOpInterface>())
        result.push_back(name);
    llvm::sort(result, [](auto a, auto b) { return a.getStringRef() < b.getStringRef(); });
    return result;
  }

  /// The family whose ODS file defines an op.
  std::string family(RegisteredOperationName name) {
    StringRef mnemonic = name.stripDialect();
    for (const auto &[family, text] : families)
      if (name.getDialectNamespace() == "mpt" && StringRef(text).contains(("<\"" + mnemonic + "\"").str()))
        return family;
    return name.getDialectNamespace() == "mpt" ? "" : "Train";
  }

  void missing(RegisteredOperationName name, StringRef what, const llvm::Twine &file) {
    llvm::errs() << name.getStringRef() << " lacks " << what << ": add one in " << file << "\n";
    ++failures;
  }

  void checkScales(RegisteredOperationName name) {
    if (!name.hasInterface<mpt::GradientScale>())
      missing(name, "a rule by which loss scales go through it (GradientScale; NotHomogeneous where none may reach it)",
              "lib/Precision/Scales");
  }

  void check(RegisteredOperationName name) {
    auto missing = [&](StringRef what, const llvm::Twine &file) { this->missing(name, what, file); };
    std::string stem = family(name).empty() ? "<Family>" : family(name);
    if (!name.hasInterface<mpt::Interpretable>())
      missing("an evaluation rule (Interpretable)", "lib/Evaluation/" + stem + ".cpp");
    if (name.getDialectNamespace() == "mpt" && gradient(name).empty())
      missing("a gradient rule (Differentiable), a decomposition, or a reason for none (NotDifferentiable)",
              "lib/Autodiff/" + stem + ".cpp");
    checkScales(name);
    if (name.getDialectNamespace() == "mpt" && !name.hasInterface<mpt::MeaningFlow>())
      missing("its arithmetic (MeaningFlow; Unknown where nothing is known of its results)",
              "lib/Precision/Meaning/Models.cpp");
    if (!mentions(tests, name.getStringRef()))
      missing("a test of its evaluation", "test/evaluation/" + StringRef(stem).lower() + ".mlir");
    // Targets make fusions of the other ops; train ops are core ops by the time a target sees them.
    if (name.getDialectNamespace() == "mpt" && !name.hasTrait<OpTrait::OneRegion>() &&
        !mentions(cases, name.getStringRef()))
      missing("a case of the conformance suite", "test/autodiff/cases, or in test/cts/cases where it has no gradient");
  }

  /// Ops that sum in some conformance case state their accumulator.
  void checkSums() {
    mpt::test::SumFinder finder;
    for (StringRef folder : {"test/cts/cases", "test/autodiff/cases"}) {
      std::error_code error;
      for (llvm::sys::fs::directory_iterator it(root + "/" + folder.str(), error), end; it != end && !error;
           it.increment(error))
        if (OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(it->path(), &context))
          finder.look(*module);
    }
    if (finder.sums.size() < 20) {
      llvm::errs() << "expected conformance cases in which ops sum, found " << finder.sums.size() << "\n";
      ++failures;
    }
    for (const std::string &name : finder.sums)
      if (!RegisteredOperationName::lookup(name, &context)->hasInterface<mpt::Accumulates>()) {
        llvm::errs() << name << " sums without an accumulator: attach Accumulates in "
                     << "lib/Precision/Rewrite/Accumulators.cpp\n";
        ++failures;
      }
  }

  /// Core and train ops that state an accumulator, and ONNX operators whose class says that they sum.
  void printSums(llvm::raw_ostream &os) {
    for (StringRef dialect : {"mpt", "train"})
      for (RegisteredOperationName name : ops(dialect))
        if (name.hasInterface<mpt::Accumulates>())
          os << name.getStringRef() << "\n";
    forEachOperator([&](StringRef name, std::optional<mpt::NumericClass> numeric) {
      if (numeric == mpt::NumericClass::Contraction || numeric == mpt::NumericClass::Reduction)
        os << name << "\n";
    });
  }

  /// Sums of products have an operand that training changes, but for these: both operands are data, or it is the
  /// backward pass of another operator.
  void checkWeights(StringRef name, std::optional<mpt::NumericClass> numeric) {
    static const std::set<StringRef> without = {"Attention", "DFT", "STFT"};
    auto [domain, opType] = name.contains(':') ? name.split(':') : std::make_pair(StringRef(), name);
    bool any = without.count(name) || opType.ends_with("Grad") || numeric != mpt::NumericClass::Contraction;
    for (unsigned operand = 0; operand < 32; ++operand)
      any |= mpt::mayTrain(domain, opType, operand);
    const ::onnx::OpSchema *schema = mpt::onnx::schemas().GetSchema(opType.str(), 1 << 20, domain.str());
    for (size_t operand = 0; schema && domain.empty() && operand < schema->inputs().size(); ++operand)
      if (llvm::is_contained({"W", "R", "scale", "Scale", "bias", "slope"}, schema->inputs()[operand].GetName()))
        any &= mpt::mayTrain(domain, opType, static_cast<unsigned>(operand));
    if (any)
      return;
    llvm::errs() << "ONNX operator " << name << " lacks its weight operands: state them in its entry, lib/Import, by "
                 << "trains({...})\n";
    ++failures;
  }

  /// A node of each ONNX operator with an entry has that entry's numeric class, not the one of unknown operators.
  int64_t checkOperatorClasses() {
    int64_t count = 0;
    forEachOperator([&](StringRef name, std::optional<mpt::NumericClass> numeric) {
      checkWeights(name, numeric);
      if (!numeric) {
        llvm::errs() << "ONNX operator " << name << " lacks a numeric class: state it in its entry, lib/Import\n";
        ++failures;
      }
      ++count;
    });
    return count;
  }

  void forEachOperator(llvm::function_ref<void(StringRef, std::optional<mpt::NumericClass>)> visit) {
    auto *classes =
        context.getLoadedDialect<mpt::onnx::ONNXDialect>()->getRegisteredInterface<mpt::onnx::OperatorClasses>();
    if (!classes) {
      llvm::errs() << "the ONNX dialect lacks numeric classes: register them in lib/Driver/Registration.cpp\n";
      ++failures;
      return;
    }
    OpBuilder builder(&context);
    for (StringRef name : mpt::knownOperators()) {
      auto [domain, opType] = name.contains(':') ? name.split(':') : std::make_pair(StringRef(), name);
      OperationState state(builder.getUnknownLoc(), mpt::onnx::NodeOp::getOperationName());
      state.addAttribute("domain", builder.getStringAttr(domain));
      state.addAttribute("op_type", builder.getStringAttr(opType));
      state.addAttribute("version", builder.getI64IntegerAttr(1));
      state.addAttribute("attrs", builder.getDictionaryAttr({}));
      Operation *node = builder.create(state);
      visit(name, classes->classOf(cast<mpt::onnx::NodeOp>(node)));
      node->destroy();
    }
  }

  std::string gradient(RegisteredOperationName name) {
    if (name.hasInterface<mpt::Differentiable>())
      return "rule";
    if (auto *marker = name.getInterface<mpt::NotDifferentiable>())
      return "none: " + marker->whyNotDifferentiable(marker, nullptr).str();
    return name.hasInterface<mpt::Decomposable>() ? "decomposition" : "";
  }

  void print(llvm::raw_ostream &os) {
    os << "# State of the operations\n\nWritten by `CoverageTest --op-status`. Meaning: an evaluation rule. "
          "Decomposition: simpler operations that\ngradients and targets may inherit.\n\n"
       << "| operation | family | meaning | gradient | decomposition |\n|---|---|---|---|---|\n";
    for (StringRef dialect : {"mpt", "train"})
      for (RegisteredOperationName name : ops(dialect))
        os << "| `" << name.getStringRef() << "` | " << family(name) << " | "
           << (name.hasInterface<mpt::Interpretable>() ? "yes" : "no") << " | "
           << (dialect == "mpt" ? gradient(name) : "") << " | " << (name.hasInterface<mpt::Decomposable>() ? "yes" : "")
           << " |\n";
  }

  int64_t failures = 0;

private:
  /// All .mlir files of a folder of the repository, one after the other.
  std::string readFolder(StringRef folder) {
    std::string text;
    std::error_code error;
    for (llvm::sys::fs::recursive_directory_iterator it(root + "/" + folder.str(), error), end; it != end && !error;
         it.increment(error))
      if (StringRef(it->path()).ends_with(".mlir"))
        text += readText(it->path());
    return text;
  }

  MLIRContext &context;
  std::string root, tests, cases;
  std::map<std::string, std::string> families;
};

} // namespace

int main(int argc, char **argv) {
  DialectRegistry registry;
  mpt::registerAll(registry);
  MLIRContext context(registry);
  context.loadAllAvailableDialects();
  Coverage coverage(context, MPT_SOURCE_DIR);
  if (argc > 1 && StringRef(argv[1]) == "--op-status") {
    coverage.print(llvm::outs());
    return 0;
  }
  if (argc > 1 && StringRef(argv[1]) == "--sums") {
    coverage.printSums(llvm::outs());
    return 0;
  }
  coverage.checkSums();
  int64_t count = 0;
  for (StringRef dialect : {"mpt", "train"})
    for (RegisteredOperationName name : coverage.ops(dialect)) {
      coverage.check(name);
      ++count;
    }
  for (RegisteredOperationName name : coverage.ops("library"))
    coverage.checkScales(name);
  if (count < 50) {
    llvm::errs() << "expected the core and train dialects to be registered, found " << count << " operations\n";
    return 1;
  }
  int64_t operators = coverage.checkOperatorClasses();
  if (operators < 150) {
    llvm::errs() << "expected the entries of import rules, found " << operators << " operators\n";
    return 1;
  }
  llvm::outs() << "coverage: " << count << " operations, " << operators << " ONNX operators, " << coverage.failures
               << " missing pieces\n";
  return coverage.failures ? 1 : 0;
}
