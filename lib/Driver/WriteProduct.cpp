// SPDX-License-Identifier: Apache-2.0
// A compilation writes its product: a library with its manifest and the template of the model's file, an `.onnx` file,
// or text; and the reports that were asked for.
#include "WriteProduct.h"

#include "OptimizerGroups.h"
#include "SavedTensors.h"

#include "mpt/Dialect/Dist/DistDialect.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Distribution/Replicas.h"
#include "mpt/Driver/Compile.h"
#include "mpt/Export/Export.h"
#include "mpt/Memory/KernelReport.h"
#include "mpt/Memory/Report.h"
#include "mpt/Precision/Policy.h"
#include "mpt/Support/Files.h"
#include "passes/precision/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Signals.h"

using namespace mlir;
using namespace mpt;

LogicalResult ProductWriter::reportKernels() {
  if (kernelFiles.empty())
    return success();
  memory::addKernelCode(kernels, kernelCode);
  for (StringRef file : kernelFiles) {
    auto print = [&](raw_ostream &os) {
      if (file.ends_with(".json"))
        os << llvm::formatv("{0:2}", llvm::json::Value(llvm::json::Object(kernels))) << "\n";
      else
        memory::printKernelReport(kernels, os);
    };
    if (llvm::Error error = writeFile(file.empty() ? "-" : file, print))
      return messages.fail(llvm::toString(std::move(error)));
  }
  return success();
}

LogicalResult ProductWriter::report(StringRef phase) {
  for (StringRef wish : options.reports) {
    auto [kind, file] = wish.split('=');
    PassManager passes(&context);
    if (kind == "precision" && phase == "precision")
      passes.addPass(createReport({file.ends_with(".json")   ? "json"
                                   : file.ends_with(".html") ? "html"
                                                             : "text",
                                   file.empty() ? "-" : file.str(), options.ranges}));
    if (kind == "memory" && phase == "memory" && failed(reportMemory(file)))
      return failure();
    if (kind == "kernels" && phase == "memory") {
      std::shared_ptr<const target::Target> target = options.target ? options.target : target::createTarget("");
      kernels = memory::kernelReport(*module, target->capabilities().tensorCores);
      kernelFiles.push_back(file);
    }
    if (!passes.empty() && failed(passes.run(*module)))
      return failure();
  }
  return success();
}

LogicalResult ProductWriter::reportMemory(StringRef file) {
  llvm::json::Object memory = memory::report(*module);
  if (searched)
    memory["budget"] = searched->report();
  auto print = [&](raw_ostream &os) { memory::writeReport(memory, file.ends_with(".json"), os); };
  if (llvm::Error error = writeFile(file.empty() ? "-" : file, print))
    return messages.fail(llvm::toString(std::move(error)));
  return success();
}

void ProductWriter::describe() {
  Builder builder(&context);
  NamedAttrList entries(getAttr<MPTDialect::ManifestAttrHelper>(*module));
  entries.set("source", builder.getStringAttr(llvm::sys::path::filename(options.input)));
  entries.set("compiler", builder.getStringAttr(compilerVersion()));
  // The path of a table says nothing to readers of the manifest; its times are there.
  PolicyName policy = PolicyName::of(options.policy);
  entries.set("policy", builder.getStringAttr(policy.name + (policy.measures ? ",measure" : "")));
  if (DictionaryAttr measured = describeTimes())
    entries.set("measured", measured);
  entries.set("loss", builder.getStringAttr(options.loss));
  if (options.debugNonfinite)
    entries.set("debug_nonfinite", builder.getBoolAttr(true));
  if (llvm::any_of(module->getOps<func::FuncOp>(), hasAttr<dist::DistDialect::PhaseAttrHelper>))
    entries.set("replicas", describeReplicas());
  if (Attribute optimizer = getAttr<MPTDialect::OptimizerAttrHelper>(*module))
    entries.set("optimizer", withGroups(*module, optimizer));
  if (options.accumulate > 1)
    entries.set("accumulate", builder.getI64IntegerAttr(options.accumulate));
  setAttr<MPTDialect::ManifestAttrHelper>(*module, entries.getDictionary(&context));
}

DictionaryAttr ProductWriter::describeTimes() {
  Builder builder(&context);
  PrecisionSettings settings = PrecisionSettings::of(*module);
  auto summary = getAttr<MPTDialect::PolicyAttrHelper>(*module);
  if (settings.timedDevice.empty())
    return {};
  Attribute rows = summary.get("products");
  return builder.getDictionaryAttr({builder.getNamedAttr("device", builder.getStringAttr(settings.timedDevice)),
                                    builder.getNamedAttr("libraries", builder.getStringAttr(settings.timedLibraries)),
                                    builder.getNamedAttr("products", rows ? rows : builder.getArrayAttr({}))});
}

DictionaryAttr ProductWriter::describeReplicas() {
  Builder builder(&context);
  llvm::SetVector<Attribute> names;
  for (auto function : module->getOps<func::FuncOp>())
    for (unsigned i = 0; i < function.getNumArguments(); ++i)
      if (getArgAttr<dist::DistDialect::SplitAttrHelper>(function, i))
        names.insert(getArgAttr<MPTDialect::NameAttrHelper>(function, i));
  const SmallVector<Attribute> split = names.takeVector();
  int64_t count = dist::replicasOf(*module).value_or(1);
  return builder.getDictionaryAttr(
      {builder.getNamedAttr("count", builder.getI64IntegerAttr(count == dist::kOneAProcess ? 0 : count)),
       builder.getNamedAttr("split", builder.getArrayAttr(split))});
}

LogicalResult ProductWriter::writeOnnx() {
  if (options.output == "-")
    return messages.fail("expected a file for the ONNX model; name it with -o");
  auto forward = module->lookupSymbol<func::FuncOp>("forward");
  if (std::string flag = reader.flagOfSteps(); options.forwardOnly && !flag.empty())
    return messages.fail("expected a training step for " + flag +
                         ", got the forward pass alone; name --loss and --optimizer [mpt-needs-step]");
  if (options.onnxForm != "joint" && options.onnxState == "inputs")
    return messages.fail("expected --onnx-form=joint for --onnx-state=inputs, got " + options.onnxForm +
                         ", whose algorithm reads its state from the model's initializers");
  if (options.forwardOnly ? !forward : !module->lookupSymbol<func::FuncOp>("step"))
    return messages.fail("expected a function to export, found none; --from may have skipped the training phase");
  messages.progress("writing " + options.output);
  if (options.forwardOnly)
    return exportOnnx(*module, forward, options.output);
  StepFile file;
  file.form = options.onnxForm == "joint" ? StepForm::Joint : StepForm::TrainingInfo;
  file.widens = options.onnxArithmetic == "wide";
  file.portable = options.onnxOps == "portable";
  file.stateInputs = options.onnxState == "inputs";
  return exportStep(*module, file, options.output);
}

LogicalResult ProductWriter::write() {
  if (options.emit == EmitKind::ONNX)
    return writeOnnx();
  if (options.emit == EmitKind::MLIR)
    return writeText([&](raw_ostream &os) {
      module->print(os, OpPrintingFlags().elideLargeResourceString().enableDebugInfo(false));
    });
  messages.progress("writing " + options.output);
  describe();
  target::LibraryOptions library;
  library.outDir = options.output;
  library.name = options.name;
  library.kind = options.emit == EmitKind::Static   ? target::LibraryKind::Static
                 : options.emit == EmitKind::Object ? target::LibraryKind::Object
                                                    : target::LibraryKind::Shared;
  library.keepIR = options.emit == EmitKind::LLVM;
  library.debugNonfinite = options.debugNonfinite;
  library.kernelCode = &kernelCode;
  if (failed(options.target->emit(*module, library)))
    return failure();
  std::string form;
  if (failed(writeForm(form))) {
    llvm::sys::fs::remove(formName()); // of the library that was replaced
    return failure();
  }
  llvm::FileRemover unfinished(form);
  return placeForm(form);
}

LogicalResult ProductWriter::writeForm(std::string &path) {
  ImportOptions artifacts;
  std::string model = trainingModelIn(options.input, artifacts);
  if (!options.inferenceModel.empty()) {
    llvm::Expected<TensorSites> other = sitesOf(model = options.inferenceModel);
    if (!other)
      return messages.fail(llvm::toString(other.takeError()));
    reader.sites = std::move(*other);
  }
  if (reader.sites.empty() || options.emit == EmitKind::Products) // which trains nothing
    return success();
  SmallString<128> unique;
  std::error_code code = llvm::sys::fs::create_directories(options.output);
  if (!code)
    code = llvm::sys::fs::createUniqueFile(formName() + ".%%%%%%", unique);
  path = unique.str().str();
  if (code)
    return messages.fail("cannot write '" + formName() + "': " + code.message());
  llvm::sys::RemoveFileOnSignal(path);
  if (llvm::Error error = writeTemplate(model, savedTensors(*module, reader.sites), path)) {
    llvm::sys::fs::remove(path);
    return messages.fail(llvm::toString(std::move(error)));
  }
  return success();
}

LogicalResult ProductWriter::placeForm(const std::string &path) {
  std::error_code code = path.empty() ? llvm::sys::fs::remove(formName()) : llvm::sys::fs::rename(path, formName());
  if (code)
    return messages.fail("cannot write '" + formName() + "': " + code.message());
  llvm::sys::DontRemoveFileOnSignal(path);
  return success();
}

std::string ProductWriter::formName() const {
  SmallString<128> path(options.output);
  llvm::sys::path::append(path, options.name + ".template");
  return path.str().str();
}

LogicalResult ProductWriter::writeText(llvm::function_ref<void(raw_ostream &)> print) {
  if (options.output == "-" && &out != &llvm::outs()) {
    print(out);
    return success();
  }
  if (llvm::Error error = writeFile(options.output, print))
    return messages.fail(llvm::toString(std::move(error)));
  return success();
}
