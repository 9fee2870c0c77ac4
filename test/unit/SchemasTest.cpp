// SPDX-License-Identifier: Apache-2.0
// The registry of schemas made on demand finds the same as the ONNX library's own registry, for every name and version,
// or a later version that adds types and changes nothing else.
#include "mpt/Dialect/ONNX/Schemas.h"

#include "onnx/defs/schema.h"

#include <algorithm>
#include <cstdio>
#include <string>

using onnx::OpSchema;
using onnx::OpSchemaRegistry;

static std::string text(const OpSchema *schema) {
  if (!schema)
    return "none";
  std::string text = schema->Name() + " " + schema->domain() + " " + std::to_string(schema->SinceVersion()) + " " +
                     std::to_string(schema->min_input()) + " " + std::to_string(schema->max_output());
  for (const auto &input : schema->inputs())
    for (const auto &type : input.GetTypes())
      text += " " + *type;
  return text;
}

/// Whether `later` takes whatever `schema` takes, in the same form.
static bool addsTypes(const OpSchema *schema, const OpSchema *later) {
  if (!schema || !later || later->SinceVersion() <= schema->SinceVersion() ||
      schema->min_input() != later->min_input() || schema->max_input() != later->max_input() ||
      schema->max_output() != later->max_output() || schema->attributes().size() != later->attributes().size())
    return false;
  for (const auto &[name, attribute] : schema->attributes()) {
    auto same = later->attributes().find(name);
    if (same == later->attributes().end() || same->second.type != attribute.type ||
        same->second.default_value.SerializeAsString() != attribute.default_value.SerializeAsString())
      return false;
  }
  for (size_t i = 0; i < schema->inputs().size(); ++i)
    for (const auto &type : schema->inputs()[i].GetTypes())
      if (!later->inputs()[i].GetTypes().count(type))
        return false;
  return true;
}

int main() {
  int failures = 0, compared = 0;
  auto names = mpt::onnx::operatorNames();
  for (const OpSchema &schema : OpSchemaRegistry::get_all_schemas_with_history()) {
    if (!std::binary_search(names.begin(), names.end(), llvm::StringRef(schema.Name()))) {
      std::printf("%s is not among the operator names\n", schema.Name().c_str());
      ++failures;
    }
    // From the version before the first one (none) to one beyond the newest.
    for (int version : {schema.SinceVersion() - 1, schema.SinceVersion(), schema.SinceVersion() + 1, 40}) {
      const OpSchema *standard = OpSchemaRegistry::Schema(schema.Name(), version, schema.domain());
      const OpSchema *ours = mpt::onnx::schemas().GetSchema(schema.Name(), version, schema.domain());
      ++compared;
      if (text(standard) != text(ours) && !addsTypes(standard, ours)) {
        std::printf("version %d: expected %s, got %s\n", version, text(standard).c_str(), text(ours).c_str());
        ++failures;
      }
    }
  }
  if (mpt::onnx::schemas().GetSchema("NoSuchOperator", 20, ""))
    ++failures;
  std::printf("%d look-ups, %d failures\n", compared, failures);
  return failures || compared < 2000;
}
