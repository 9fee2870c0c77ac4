// SPDX-License-Identifier: Apache-2.0
// ONNX shape inference, with values propagated where they may be shapes.
#include "Proto.h"

#include "mpt/Dialect/ONNX/Schemas.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"

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

/// The registered schemas, but without propagation of the values of matrices and long vectors, and with a look at
/// attributes that count dimensions before inference: the library's functions for some ops use them as they are.
class Schemas : public ISchemaRegistry {
public:
  const OpSchema *GetSchema(const std::string &key, int version, const std::string &domain) const override {
    if (key == "Gradient" && domain == proto::kTrainingDomain)
      return gradient(version);
    const OpSchema *schema = mpt::onnx::schemas().GetSchema(key, version, domain);
    bool counts = schema && schema->has_type_and_shape_inference_function() &&
                  llvm::any_of(llvm::ArrayRef{"axis", "axes", "batch_dims"},
                               [&](const char *name) { return schema->attributes().count(name); });
    if (!schema || (!schema->has_data_propagation_function() && !counts))
      return schema;
    std::lock_guard<std::mutex> lock(mutex);
    auto [entry, fresh] = guarded.try_emplace(schema);
    if (fresh) {
      entry->second = std::make_unique<OpSchema>(*schema);
      if (schema->has_data_propagation_function())
        entry->second->PartialDataPropagationFunction(
            [propagate = schema->GetDataPropagationFunction(),
             readsTypes = key == "Shape" || key == "Size"](DataPropagationContext &context) {
              for (size_t i = 0, e = context.getNumInputs(); i < e && !readsTypes; ++i)
                if (!mayBeShape(context.getInputType(i)))
                  return;
              propagate(context);
            });
      if (counts)
        entry->second->TypeAndShapeInferenceFunction(
            [infer = schema->GetTypeAndShapeInferenceFunction(), newAxis = key == "OneHot"](InferenceContext &context) {
              checkDimensions(context, newAxis);
              infer(context);
            });
    }
    return entry->second.get();
  }

private:
  /// The library has no inference for Gradient. Its operands are y, then xs (takeGradientOperands).
  const OpSchema *gradient(int version) const {
    const OpSchema *schema = mpt::onnx::schemas().GetSchema("Gradient", version, proto::kTrainingDomain.str());
    if (!schema)
      return nullptr;
    std::lock_guard<std::mutex> lock(mutex);
    auto [entry, fresh] = guarded.try_emplace(schema);
    if (fresh) {
      entry->second = std::make_unique<OpSchema>(*schema);
      entry->second->TypeAndShapeInferenceFunction([](InferenceContext &context) {
        for (size_t i = 0; i < context.getNumOutputs() && i + 1 < context.getNumInputs(); ++i)
          if (context.getInputType(i + 1))
            *context.getOutputType(i) = *context.getInputType(i + 1);
      });
    }
    return entry->second.get();
  }

  /// -1 where it is not known.
  static int64_t rankOf(InferenceContext &context, size_t input) {
    const TypeProto *type = context.getNumInputs() > input ? context.getInputType(input) : nullptr;
    return type && type->has_tensor_type() && type->tensor_type().has_shape() ? type->tensor_type().shape().dim_size()
                                                                              : -1;
  }
  static void checkRange(const std::string &what, int64_t value, int64_t low, int64_t high) {
    if (value < low || value > high)
      throw InferenceError("expected " + what + " in [" + std::to_string(low) + ", " + std::to_string(high) +
                           "], got " + std::to_string(value));
  }

  /// Flatten's `axis` may be the rank, a per-tensor scale's is ignored and 1 by default; `newAxis`: it counts in
  /// the result, which has one more, as Unsqueeze's `axes` do.
  static void checkDimensions(InferenceContext &context, bool newAxis) {
    int64_t rank = rankOf(context, 0), indices = rankOf(context, 1);
    if (rank < 0)
      return;
    if (const AttributeProto *axis = context.getAttribute("axis"); axis && axis->has_i())
      checkRange("axis", axis->i(), -rank - newAxis, std::max<int64_t>(rank, 1));
    if (const AttributeProto *axes = context.getAttribute("axes"))
      for (int64_t axis : axes->ints())
        checkRange("axes", axis, -rank - axes->ints_size(), rank + axes->ints_size());
    if (const AttributeProto *batch = context.getAttribute("batch_dims"); batch && indices >= 0)
      checkRange("batch_dims", batch->i(), 0, std::max<int64_t>(std::min(rank, indices) - 1, 0));
  }

  /// The library takes values of any rank for vectors.
  static bool mayBeShape(const TypeProto *type) {
    if (!type || !type->has_tensor_type() || type->tensor_type().shape().dim_size() == 0)
      return true;
    return type->tensor_type().shape().dim_size() == 1 &&
           type->tensor_type().shape().dim(0).dim_value() <= longestShape;
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
    return error.what();
  }
}
