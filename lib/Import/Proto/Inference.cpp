// ONNX shape inference, with values propagated where they may be shapes.
#include "Proto.h"

#include "mpt/Dialect/ONNX/Schemas.h"

#include "onnx/defs/schema.h"
#include "onnx/shape_inference/implementation.h"

#include <map>
#include <mutex>

using namespace mpt;
using namespace ::onnx;

namespace {

/// The library keeps one record an element of every vector that it propagates; a shape has no more than these.
constexpr int64_t longestShape = 1024;

/// The registered schemas, but without propagation of long vectors' values.
class Schemas : public ISchemaRegistry {
public:
  const OpSchema *GetSchema(const std::string &key, int version, const std::string &domain) const override {
    const OpSchema *schema = mpt::onnx::schemas().GetSchema(key, version, domain);
    if (!schema || !schema->has_data_propagation_function())
      return schema;
    std::lock_guard<std::mutex> lock(mutex);
    auto [entry, fresh] = guarded.try_emplace(schema);
    if (fresh) {
      entry->second = std::make_unique<OpSchema>(*schema);
      entry->second->PartialDataPropagationFunction(
          [propagate = schema->GetDataPropagationFunction()](DataPropagationContext &context) {
            for (size_t i = 0, e = context.getNumInputs(); i < e; ++i)
              if (isLong(context.getInputType(i)))
                return;
            propagate(context);
          });
    }
    return entry->second.get();
  }

private:
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
