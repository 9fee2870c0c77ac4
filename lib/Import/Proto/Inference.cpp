// ONNX shape inference, with values propagated where they may be shapes.
#include "Proto.h"

#include "mpt/Dialect/ONNX/Schemas.h"

#include "onnx/defs/schema.h"
#include "onnx/shape_inference/implementation.h"

#include <algorithm>
#include <map>
#include <mutex>

using namespace mpt;
using namespace ::onnx;

namespace {

/// The library keeps one record an element of every vector that it propagates; a shape has no more than these.
constexpr int64_t longestShape = 1024;

/// The registered schemas, but without propagation of long vectors' values, and with a look at `axis` before inference:
/// the library's functions for some ops use it as it is.
class Schemas : public ISchemaRegistry {
public:
  const OpSchema *GetSchema(const std::string &key, int version, const std::string &domain) const override {
    const OpSchema *schema = mpt::onnx::schemas().GetSchema(key, version, domain);
    bool axis = schema && schema->has_type_and_shape_inference_function() && schema->attributes().count("axis");
    if (!schema || (!schema->has_data_propagation_function() && !axis))
      return schema;
    std::lock_guard<std::mutex> lock(mutex);
    auto [entry, fresh] = guarded.try_emplace(schema);
    if (fresh) {
      entry->second = std::make_unique<OpSchema>(*schema);
      if (schema->has_data_propagation_function())
        entry->second->PartialDataPropagationFunction(
            [propagate = schema->GetDataPropagationFunction()](DataPropagationContext &context) {
              for (size_t i = 0, e = context.getNumInputs(); i < e; ++i)
                if (isLong(context.getInputType(i)))
                  return;
              propagate(context);
            });
      if (axis)
        entry->second->TypeAndShapeInferenceFunction(
            [infer = schema->GetTypeAndShapeInferenceFunction(), newAxis = key == "OneHot"](InferenceContext &context) {
              checkAxis(context, newAxis);
              infer(context);
            });
    }
    return entry->second.get();
  }

private:
  /// Flatten's `axis` may be the rank, that of a per-tensor scale is ignored and 1 by default; `newAxis`: it counts in
  /// the result, which has one more.
  static void checkAxis(InferenceContext &context, bool newAxis) {
    const AttributeProto *axis = context.getAttribute("axis");
    const TypeProto *type = context.getNumInputs() > 0 ? context.getInputType(0) : nullptr;
    if (!axis || !axis->has_i() || !type || !type->has_tensor_type() || !type->tensor_type().has_shape())
      return;
    int64_t rank = type->tensor_type().shape().dim_size(), low = -rank - newAxis, high = std::max<int64_t>(rank, 1);
    if (axis->i() < low || axis->i() > high)
      throw InferenceError("expected axis in [" + std::to_string(low) + ", " + std::to_string(high) + "], got " +
                           std::to_string(axis->i()));
  }

  static bool isLong(const TypeProto *type) {
    if (!type || !type->has_tensor_type() || type->tensor_type().shape().dim_size() != 1)
      return false;
    return type->tensor_type().shape().dim(0).dim_value() > longestShape;
  }

  mutable std::mutex mutex;
  mutable std::map<const OpSchema *, std::unique_ptr<OpSchema>> guarded;
};

} // namespace

std::optional<std::string> proto::inferShapes(ModelProto &model) {
  static const Schemas schemas;
  try {
    ShapeInferenceOptions strict(/*check_type_val=*/true, /*strict_mode_val=*/1, /*data_prop_val=*/true);
    shape_inference::InferShapes(model, &schemas, strict);
    return std::nullopt;
  } catch (const std::exception &error) {
    return plainMessage(error.what());
  }
}
