// SPDX-License-Identifier: Apache-2.0
// The registry of schemas made on demand finds what the ONNX library's own registry finds, for every name and version.
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
      std::string expected = text(OpSchemaRegistry::Schema(schema.Name(), version, schema.domain()));
      std::string found = text(mpt::onnx::schemas().GetSchema(schema.Name(), version, schema.domain()));
      ++compared;
      if (expected != found) {
        std::printf("version %d: expected %s, got %s\n", version, expected.c_str(), found.c_str());
        ++failures;
      }
    }
  }
  if (mpt::onnx::schemas().GetSchema("NoSuchOperator", 20, ""))
    ++failures;
  std::printf("%d look-ups, %d failures\n", compared, failures);
  return failures || compared < 2000;
}
