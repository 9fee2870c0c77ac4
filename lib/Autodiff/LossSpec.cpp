// SPDX-License-Identifier: Apache-2.0
// Parser of losses.
#include "mpt/Autodiff/LossSpec.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

#include <cmath>

using namespace llvm;
using namespace mpt;

namespace {

struct KindInfo {
  LossKind kind;
  StringLiteral name, settings, text; ///< settings of its own, with a comma behind each
};
constexpr KindInfo kinds[] = {
    {LossKind::softmaxCrossEntropy, "softmax-cross-entropy", "class-axis=N, ignore-index=N, ",
     "cross entropy of logits and class indices"},
    {LossKind::nll, "nll", "class-axis=N, ignore-index=N, ", "negative log-likelihood of class indices"},
    {LossKind::focal, "focal", "class-axis=N, ignore-index=N, gamma=NUMBER, alpha=NUMBER, ",
     "cross entropy that counts samples less the surer they are (arXiv 1708.02002)"},
    {LossKind::mse, "mse", "", "mean of squared differences"},
    {LossKind::l1, "l1", "", "mean of absolute differences"},
    {LossKind::smoothL1, "smooth-l1", "beta=NUMBER, ", "l1, and a square below beta"},
    {LossKind::huber, "huber", "delta=NUMBER, ", "half a square, and linear beyond delta"},
    {LossKind::bceWithLogits, "bce-with-logits", "", "binary cross entropy of logits"},
    {LossKind::kl, "kl", "", "Kullback-Leibler divergence of log-probabilities from probabilities"},
    {LossKind::cosine, "cosine", "", "1 less the cosine of the angle between rows"},
    {LossKind::ctc, "ctc", "max-labels=N, blank=N, batch-axis=N, class-axis=N, ignore-index=N, zero-infinity=0|1, ",
     "connectionist temporal classification of log-probabilities; it needs max-labels"},
    {LossKind::none, "none", "reduction=mean|sum, ", "the model's result is the loss"}};

Error problem(const Twine &message) { return createStringError(message + " [mpt-bad-value]"); }

/// Takes a setting that ctc alone has.
bool takeCTC(LossSpec &spec, StringRef key, int64_t number) {
  if (key == "max-labels" && number > 0)
    spec.maxLabels = number;
  else if (key == "blank" && number >= 0)
    spec.blank = number;
  else if (key == "batch-axis")
    spec.batchAxis = number;
  else if (key == "zero-infinity" && (number == 0 || number == 1))
    spec.zeroInfinity = number;
  else
    return false;
  return true;
}

Expected<LossSpec> parseOne(StringRef text) {
  SmallVector<StringRef> parts;
  text.split(parts, ',');
  StringRef name = parts.front().trim();
  const KindInfo *info = find_if(kinds, [&](const KindInfo &info) { return info.name == name; });
  if (info == std::end(kinds))
    return problem("expected a loss (" + join(map_range(kinds, [](const KindInfo &k) { return k.name.str(); }), ", ") +
                   "), got '" + name + "'");
  LossSpec spec;
  spec.kind = info->kind;
  bool ctc = spec.kind == LossKind::ctc, classes = hasClasses(spec.kind) || ctc, focal = spec.kind == LossKind::focal;
  const bool own = spec.kind == LossKind::none;
  if (ctc)
    spec.classAxis = 2;
  StringRef edge = spec.kind == LossKind::smoothL1 ? "beta" : spec.kind == LossKind::huber ? "delta" : "";
  auto positive = [](StringRef text, double &field) {
    return !text.getAsDouble(field) && field > 0.0 && std::isfinite(field);
  };
  for (StringRef part : drop_begin(parts)) {
    auto [key, value] = part.trim().split('=');
    int64_t number = 0;
    bool whole = !value.getAsInteger(10, number);
    if (key == "class-axis" && classes && whole)
      spec.classAxis = number;
    else if (key == "ignore-index" && classes && whole)
      spec.ignoreIndex = number;
    else if (own && key == "reduction" && (value == "mean" || value == "sum"))
      spec.reduction = value == "mean" ? OwnReduction::mean : OwnReduction::sum;
    else if (ctc && whole && takeCTC(spec, key, number))
      continue;
    else if (key == "output" && !value.empty())
      spec.output = value.str();
    else if (!edge.empty() && key == edge && positive(value, spec.beta))
      continue;
    else if (focal && key == "alpha" && positive(value, spec.alpha))
      continue;
    else if (focal && key == "gamma" && !value.getAsDouble(spec.gamma) && spec.gamma >= 0 && std::isfinite(spec.gamma))
      continue;
    else if (key != "weight" || value.getAsDouble(spec.weight) || !std::isfinite(spec.weight))
      return problem("expected " + info->settings + "output=NAME or weight=NUMBER after " + info->name + ", got '" +
                     part + "'");
  }
  if (ctc && !spec.maxLabels)
    return problem("expected max-labels=N after ctc, the number of labels of the longest sequence, got '" + text + "'");
  return spec;
}

} // namespace

bool mpt::hasClasses(LossKind kind) {
  return kind == LossKind::softmaxCrossEntropy || kind == LossKind::nll || kind == LossKind::focal;
}

std::vector<Described> mpt::describeLosses() {
  std::vector<Described> all;
  for (const KindInfo &info : kinds)
    all.push_back({info.name, (info.text + "; " + info.settings + "output=NAME, weight=NUMBER").str()});
  return all;
}

Expected<SmallVector<LossSpec, 1>> mpt::parseLossSpecs(StringRef text) {
  SmallVector<LossSpec, 1> specs;
  SmallVector<StringRef> parts;
  text.split(parts, ';');
  StringSet<> outputs;
  for (StringRef part : parts) {
    Expected<LossSpec> spec = parseOne(part);
    if (!spec)
      return spec.takeError();
    if (parts.size() > 1 && (spec->output.empty() || !outputs.insert(spec->output).second))
      return problem("expected each of several losses to name an output of its own, as in mse,output=NAME, got '" +
                     part + "'");
    specs.push_back(*spec);
  }
  return specs;
}
