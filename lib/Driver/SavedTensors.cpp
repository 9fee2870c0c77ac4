// SPDX-License-Identifier: Apache-2.0
// Which states a saved model file takes its tensors from: masters before narrow copies.
#include "SavedTensors.h"

#include "mpt/Dialect/RT/AbiWords.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Support/SafeTensors.h"
#include "mpt/Target/Runtime.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/JSON.h"

#include <dlfcn.h>
#include <utility>

using namespace mlir;
using namespace mpt;

/// Adds a tensor, and its copies in the file.
static void add(std::vector<SavedTensor> &to, SavedTensor saved) {
  auto copies = std::exchange(saved.site.copies, {});
  if (!saved.site.path.empty()) // none of its own where the file has copies alone
    to.push_back(saved);
  saved.site = {};
  for (auto &[path, view] : copies) {
    saved.site.path = std::move(path);
    saved.view = std::move(view);
    to.push_back(saved);
  }
}

std::vector<SavedTensor> mpt::savedTensors(ModuleOp module, const TensorSites &sites) {
  llvm::StringMap<train::StateOp> masters, averages; // by the symbol that they belong to
  for (auto state : module.getOps<train::StateOp>())
    if (StringRef of = state.getOf().value_or(""); !of.empty()) {
      if (state.getRole() == train::Role::master)
        masters[of] = state;
      else if (state.getSymName() == (of + ".ema").str())
        averages[of] = state;
    }
  std::vector<SavedTensor> result;
  for (auto state : module.getOps<train::StateOp>()) {
    auto site = sites.find(state.getTensorName());
    if (site == sites.end())
      continue;
    train::StateOp master = masters.lookup(state.getSymName()), average = averages.lookup(state.getSymName());
    train::StateOp source = master ? master : state;
    SavedTensor saved;
    saved.name = state.getTensorName().str();
    saved.site = site->second;
    saved.source = source.getTensorName().str();
    saved.average = average ? average.getTensorName().str() : "";
    saved.type = static_cast<int32_t>(rt::runtimeType(getElementTypeOrSelf(source.getType())));
    saved.changes = state.getRole() != train::Role::constant && !state.getFrozen();
    add(result, std::move(saved));
  }
  return result;
}

/// The same by names alone: states that training adds to a parameter are called after it.
static std::vector<SavedTensor> tensorsIn(const SafeTensorsFile &state, const TensorSites &sites) {
  llvm::StringMap<bool> frozen;
  auto metadata = state.metadata().find("frozen");
  if (metadata != state.metadata().end()) {
    llvm::Expected<llvm::json::Value> names = llvm::json::parse(metadata->second);
    if (names && names->getAsArray())
      for (const llvm::json::Value &name : *names->getAsArray())
        frozen[name.getAsString().value_or("")] = true;
    if (!names)
      llvm::consumeError(names.takeError());
  }
  std::vector<SavedTensor> result;
  for (const auto &site : sites) {
    std::string name = site.getKey().str(), master = name + ".master", average = name + ".ema";
    if (!state.find(name).type)
      continue;
    SavedTensor saved;
    saved.name = name;
    saved.site = site.second;
    saved.source = state.find(master).type ? master : name;
    saved.average = state.find(average).type ? average : "";
    saved.type = static_cast<int32_t>(rt::runtimeType(state.find(saved.source).type.getElementType()));
    saved.changes = !frozen.contains(name);
    add(result, std::move(saved));
  }
  return result;
}

llvm::Error mpt::saveState(const CompileOptions &options, MLIRContext *context) {
  if (options.output == "-")
    return llvm::createStringError("expected a file for the ONNX model; name it with -o");
  auto state = SafeTensorsFile::open(options.state, context);
  if (!state)
    return state.takeError();
  llvm::Expected<TensorSites> sites = sitesOf(options.input);
  if (!sites)
    return sites.takeError();
  std::vector<SavedTensor> tensors = tensorsIn(*state, *sites);
  if (tensors.empty())
    return llvm::createStringError("expected a state of '" + options.input + "', got '" + options.state +
                                   "', which has none of its tensors [mpt-other-state]");
  // The runtime has the writer of models; it is opened for this alone.
  std::string runtime = target::findRuntime("libmpt_rt.so");
  void *library = dlopen(runtime.empty() ? "libmpt_rt.so" : runtime.c_str(), RTLD_NOW | RTLD_LOCAL);
  auto save = library ? reinterpret_cast<int (*)(const char *, const char *, const char *, int32_t)>(
                            dlsym(library, "mpt_template_save_onnx"))
                      : nullptr;
  auto message = library ? reinterpret_cast<const char *(*)()>(dlsym(library, "mpt_last_error")) : nullptr;
  if (!save || !message)
    return llvm::createStringError(llvm::Twine("expected libmpt_rt.so beside mpt-opt (../lib) for --state: ") +
                                   dlerror());
  SmallString<128> form;
  if (std::error_code code = llvm::sys::fs::createUniqueFile(options.output + ".template.%%%%%%", form))
    return llvm::createStringError(code, "cannot write '" + options.output + "': " + code.message());
  llvm::FileRemover unfinished(form);
  if (llvm::Error wrong = writeTemplate(options.input, tensors, form))
    return wrong;
  if (save(form.c_str(), options.state.c_str(), options.output.c_str(), options.averaged) != 0)
    return llvm::createStringError(message());
  return llvm::Error::success();
}
