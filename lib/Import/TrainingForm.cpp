// SPDX-License-Identifier: Apache-2.0
// TrainingForm as text and as entries of the manifest.
#include "mpt/Import/TrainingForm.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

using namespace mlir;
using namespace mpt;

namespace {
constexpr StringLiteral kTraining = "training";

struct Field {
  StringLiteral name;
  std::string TrainingForm::*member;
  bool isRare = false; ///< left out of manifests where it is empty
};
constexpr Field fields[] = {{"form", &TrainingForm::form},
                            {"loss", &TrainingForm::loss},
                            {"gradients", &TrainingForm::gradients},
                            {"recognized", &TrainingForm::recognized, true},
                            {"optimizer", &TrainingForm::optimizer},
                            {"state", &TrainingForm::state},
                            {"evaluation", &TrainingForm::evaluation, true},
                            {"used", &TrainingForm::used}};
} // namespace

std::string TrainingForm::text() const {
  std::string result = form;
  const char *separator = ": ";
  for (const Field &field : ArrayRef(fields).drop_front()) {
    if ((this->*field.member).empty())
      continue;
    result += separator + field.name.str() + " " + this->*field.member;
    separator = "; ";
  }
  return result;
}

void mpt::note(ModuleOp module, const TrainingForm &form) {
  Builder builder(module.getContext());
  NamedAttrList entries;
  for (const Field &field : fields)
    if (!field.isRare || !(form.*field.member).empty())
      entries.set(field.name, builder.getStringAttr(form.*field.member));
  NamedAttrList manifest(getAttr<MPTDialect::ManifestAttrHelper>(module));
  manifest.set(kTraining, entries.getDictionary(module.getContext()));
  setAttr<MPTDialect::ManifestAttrHelper>(module, manifest.getDictionary(module.getContext()));
}

std::optional<TrainingForm> mpt::notedForm(ModuleOp module) {
  auto manifest = getAttr<MPTDialect::ManifestAttrHelper>(module);
  auto entries = manifest ? manifest.getAs<DictionaryAttr>(kTraining) : DictionaryAttr();
  if (!entries)
    return std::nullopt;
  TrainingForm form;
  for (const Field &field : fields)
    if (auto text = entries.getAs<StringAttr>(field.name))
      form.*field.member = text.getValue().str();
  return form;
}
