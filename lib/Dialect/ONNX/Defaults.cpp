// SPDX-License-Identifier: Apache-2.0
// Defaults of attributes, from the ONNX library's schemas.
#include "mpt/Dialect/ONNX/Defaults.h"

#include "mpt/Dialect/ONNX/Schemas.h"

#include "mlir/IR/Builders.h"

#include "onnx/defs/schema.h"

using namespace mlir;
using ::onnx::AttributeProto;

Attribute mpt::onnx::defaultAttribute(MLIRContext *context, StringRef domain, StringRef opType, int64_t version,
                                      StringRef name) {
  if (domain == "ai.onnx")
    domain = "";
  if (!domain.empty() && domain != "ai.onnx.ml")
    return {};
  const ::onnx::OpSchema *schema = schemas().GetSchema(opType.str(), static_cast<int>(version), domain.str());
  if (!schema)
    return {};
  auto found = schema->attributes().find(name.str());
  if (found == schema->attributes().end())
    return {};
  const AttributeProto &value = found->second.default_value;
  Builder builder(context);
  switch (value.type()) {
  case AttributeProto::INT:
    return builder.getI64IntegerAttr(value.i());
  case AttributeProto::FLOAT:
    return builder.getF32FloatAttr(value.f());
  case AttributeProto::STRING:
    return builder.getStringAttr(value.s());
  case AttributeProto::INTS:
    return builder.getDenseI64ArrayAttr(SmallVector<int64_t>(value.ints().begin(), value.ints().end()));
  case AttributeProto::FLOATS:
    return builder.getDenseF32ArrayAttr(SmallVector<float>(value.floats().begin(), value.floats().end()));
  default:
    return {};
  }
}
