// SPDX-License-Identifier: Apache-2.0
// A registry that makes schemas on demand from the functions that the ONNX library's headers declare.
#include "mpt/Dialect/ONNX/Schemas.h"

#include "llvm/ADT/STLExtras.h"

#include "onnx/defs/operator_sets.h"
#include "onnx/defs/operator_sets_ml.h"
#include "onnx/defs/operator_sets_preview.h"
#include "llvm/ADT/Twine.h"

#include <array>
#include <memory>
#include <mutex>

using llvm::StringLiteral;
using llvm::StringRef;
using ::onnx::OpSchema;

namespace {

struct Entry {
  StringLiteral name, domain;
  int version;
  OpSchema (*make)();
};

// Schemas.inc is a line for each class of operator_sets*.h, sorted by name.
constexpr Entry entries[] = {
#define MPT_ONNX_SCHEMA(name, domain, version, type) {name, domain, version, ::onnx::GetOpSchema<::onnx::type>},
#include "Schemas.inc"
#undef MPT_ONNX_SCHEMA
};

/// Versions that differ from the next in types alone, which exporters use before their time: torch's compare floats
/// with Equal in opset 7.
struct Widened {
  StringLiteral name;
  int from, to;
};
constexpr Widened widened[] = {{"Equal", 7, 11}, {"Flatten", 1, 9}, {"Gemm", 7, 9}, {"Greater", 7, 9}, {"Less", 7, 9},
                               {"MatMul", 1, 9}, {"Max", 8, 12},    {"Min", 8, 12}, {"Pow", 7, 12},    {"PRelu", 7, 9}};

class Schemas : public ::onnx::ISchemaRegistry {
public:
  const OpSchema *GetSchema(const std::string &name, int newest, const std::string &domain) const override {
    if (std::optional<int64_t> version = mpt::onnx::versionOfDomain(domain))
      return GetSchema(name, static_cast<int>(*version), "");
    if (!domain.empty() && domain != "ai.onnx.ml")
      return ::onnx::OpSchemaRegistry::Instance()->GetSchema(name, newest, domain);
    const Entry *found = nullptr;
    for (const Entry *entry = llvm::lower_bound(entries, name, [](const Entry &e, StringRef n) { return e.name < n; });
         entry != std::end(entries) && entry->name == name; ++entry)
      if (entry->domain == domain && entry->version <= newest && (!found || entry->version > found->version))
        found = entry;
    if (!found)
      return nullptr;
    for (const Widened &next : widened)
      if (domain.empty() && next.name == name && next.from == found->version)
        return GetSchema(name, next.to, domain);
    std::lock_guard<std::mutex> lock(mutex);
    std::unique_ptr<OpSchema> &schema = made[found - entries];
    if (!schema) {
      schema = std::make_unique<OpSchema>(found->make());
      schema->Finalize();
    }
    return schema.get();
  }

private:
  mutable std::mutex mutex;
  mutable std::array<std::unique_ptr<OpSchema>, std::size(entries)> made;
};

} // namespace

const ::onnx::ISchemaRegistry &mpt::onnx::schemas() {
  static const Schemas registry;
  return registry;
}

static constexpr StringLiteral versionPrefix = "ai.onnx.opset.";

std::string mpt::onnx::domainOfVersion(int64_t version) { return (versionPrefix + std::to_string(version)).str(); }

std::optional<int64_t> mpt::onnx::versionOfDomain(StringRef domain) {
  int64_t version;
  if (!domain.consume_front(versionPrefix) || domain.getAsInteger(10, version))
    return std::nullopt;
  return version;
}

std::vector<StringRef> mpt::onnx::operatorNames() {
  std::vector<StringRef> names;
  for (const Entry &entry : entries)
    if (names.empty() || names.back() != entry.name)
      names.push_back(entry.name);
  return names;
}
