// SPDX-License-Identifier: Apache-2.0
// Parameters are counted in the module; import has noted the held ones in the manifest.
#include "Trained.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainDialect.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace mpt;

/// More names are left to the manifest.
constexpr size_t kNamesInLine = 6;

Trained mpt::trainedIn(ModuleOp module) {
  Trained result;
  for (auto state : module.getOps<train::StateOp>()) {
    if (state.getRole() != train::Role::parameter || state.getFrozen())
      continue;
    ++result.tensors;
    result.values += cast<RankedTensorType>(state.getType()).getNumElements();
  }
  result.line = llvm::formatv("trains {0} tensor{1}, {2:N} value{3}", result.tensors, result.tensors == 1 ? "" : "s",
                              result.values, result.values == 1 ? "" : "s");
  auto manifest = getAttr<MPTDialect::ManifestAttrHelper>(module);
  if (auto separated = manifest ? manifest.getAs<DictionaryAttr>("separated") : DictionaryAttr())
    result.line += llvm::formatv("; {0} of them the file has as parts of others that began equal (--tie=REGEX keeps "
                                 "them one)",
                                 separated.size());
  if (auto joined = manifest ? manifest.getAs<DictionaryAttr>("joined") : DictionaryAttr())
    result.line += llvm::formatv(joined.size() == 1 ? "; {0} tensor of the file follows another, as a transposed, "
                                                      "repeated or partial copy"
                                                    : "; {0} tensors of the file follow others, as transposed, "
                                                      "repeated or partial copies",
                                 joined.size());
  if (auto norms = manifest ? manifest.getAs<IntegerAttr>("frozen_batch_norms") : IntegerAttr())
    result.line +=
        llvm::formatv("; {0} batch norm{1} in inference form keep{2} statistics (--batch-norm=train moves "
                      "them)",
                      norms.getInt(), norms.getInt() == 1 ? "" : "s", norms.getInt() == 1 ? "s its" : " their");
  auto held = manifest ? manifest.getAs<DictionaryAttr>("held") : DictionaryAttr();
  // Parameters that flags hold may be most of a model, and their names are no news.
  llvm::MapVector<StringRef, size_t> byFlags;
  SmallVector<NamedAttribute> named;
  for (NamedAttribute entry : held ? held.getValue() : ArrayRef<NamedAttribute>())
    if (StringRef why = cast<StringAttr>(entry.getValue()); why.contains("--"))
      ++byFlags[why.substr(why.find("--"))];
    else
      named.push_back(entry);
  for (auto [flag, count] : byFlags)
    result.line += llvm::formatv("; {0} holds {1} tensor{2}{3}", flag, count, count == 1 ? "" : "s",
                                 flag == "--train" ? " that would train without it" : "");
  for (auto [i, entry] : llvm::enumerate(ArrayRef(named).take_front(kNamesInLine)))
    result.line += llvm::formatv("{0}{1} ({2})", i == 0 ? "; held: " : ", ", entry.getName().getValue(),
                                 cast<StringAttr>(entry.getValue()).getValue());
  if (named.size() > kNamesInLine)
    result.line += llvm::formatv(" and {0} more, named in the manifest", named.size() - kNamesInLine);
  return result;
}
