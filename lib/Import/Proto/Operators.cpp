// SPDX-License-Identifier: Apache-2.0
// Nodes that mean something else than an operator of the model's own operator set: operators that no set has, and local
// functions with an older one.
#include "Proto.h"

#include "mpt/Dialect/ONNX/Schemas.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"

#include "onnx/defs/schema.h"
#include "onnx/inliner/inliner.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
using Opsets = google::protobuf::RepeatedPtrField<OperatorSetIdProto>;
} // namespace

static bool isStandard(StringRef domain) { return domain.empty() || domain == "ai.onnx"; }

static const OpSchema *schemaOf(const NodeProto &node, int64_t version) {
  return mpt::onnx::schemas().GetSchema(node.op_type(), static_cast<int>(version), "");
}

/// 0 where it is not imported.
static int64_t versionIn(const Opsets &opsets, StringRef domain) {
  for (const OperatorSetIdProto &opset : opsets)
    if (opset.domain() == domain || (isStandard(domain) && isStandard(opset.domain())))
      return opset.version();
  return 0;
}

static void import(Opsets &opsets, StringRef domain, int64_t version) {
  if (versionIn(opsets, domain))
    return;
  OperatorSetIdProto &opset = *opsets.Add();
  opset.set_domain(domain.str());
  opset.set_version(version);
}

/// Gives the node a domain of its own, so that neither the library nor import rules take it for another operator.
static void setVersion(NodeProto &node, int64_t version, Opsets &opsets) {
  node.set_domain(mpt::onnx::domainOfVersion(version));
  import(opsets, node.domain(), version);
}

namespace {
/// Nodes of ai.onnx that the given operator set does not have.
class Unregistered {
public:
  Unregistered(const ModelProto &model, bool isRewritten, MLIRContext *context)
      : isRewritten(isRewritten), context(context) {
    for (const FunctionProto &function : model.functions())
      if (isStandard(function.domain()))
        functions.insert(function.name());
  }

  LogicalResult settle(google::protobuf::RepeatedPtrField<NodeProto> &nodes, Opsets &opsets) {
    int64_t version = versionIn(opsets, "");
    return proto::visitNodes(nodes, [&](NodeProto &node) {
      if (!isStandard(node.domain()) || schemaOf(node, version) || functions.contains(node.op_type()))
        return success();
      Location loc = proto::namedLoc(context, proto::nodeName(node));
      bool isRuntimes = isRuntimeOperator(node.op_type(), version);
      if (!isRuntimes && !isRewritten)
        return LogicalResult(emitError(loc) << unsupportedOperator("", node.op_type(), version));
      if (!isRuntimes)
        emitWarning(loc) << "opset " << version << " of ai.onnx has no operator " << node.op_type()
                         << "; the node stays as it is";
      if (isRewritten) {
        setVersion(node, version, opsets);
        return success();
      }
      node.set_domain("com.microsoft");
      import(opsets, node.domain(), 1);
      return success();
    });
  }

private:
  bool isRewritten;
  MLIRContext *context;
  llvm::StringSet<> functions;
};
} // namespace

LogicalResult proto::settleUnregistered(ModelProto &model, bool isRewritten, MLIRContext *context) {
  Unregistered unregistered(model, isRewritten, context);
  if (failed(unregistered.settle(*model.mutable_graph()->mutable_node(), *model.mutable_opset_import())))
    return failure();
  for (FunctionProto &function : *model.mutable_functions())
    if (failed(unregistered.settle(*function.mutable_node(), *function.mutable_opset_import())))
      return failure();
  return success();
}

/// Calls `visit` for the nodes of a function that mean something else by its own operator set than by the model's.
static void visitChanged(FunctionProto &function, const ModelProto &model,
                         llvm::function_ref<void(NodeProto &)> visit) {
  int64_t own = versionIn(function.opset_import(), ""), models = versionIn(model.opset_import(), "");
  if (own == 0 || models == 0 || own == models)
    return;
  (void)proto::visitNodes(*function.mutable_node(), [&](NodeProto &node) {
    if (isStandard(node.domain()) && schemaOf(node, own) != schemaOf(node, models))
      visit(node);
    return success();
  });
}

/// Gives a function the model's operator sets; nodes that mean something else there keep their version.
static void adoptOpsets(FunctionProto &function, ModelProto &model) {
  Opsets &opsets = *function.mutable_opset_import();
  int64_t own = versionIn(opsets, "");
  visitChanged(function, model, [&](NodeProto &node) { setVersion(node, own, opsets); });
  for (OperatorSetIdProto &opset : opsets) {
    import(*model.mutable_opset_import(), opset.domain(), opset.version());
    opset.set_version(versionIn(model.opset_import(), opset.domain()));
  }
}

/// Adds the functions in `all` that the model's own functions call and the model does not have.
static void restoreCallees(ModelProto &model, const google::protobuf::RepeatedPtrField<FunctionProto> &all) {
  llvm::StringSet<> known;
  auto key = [](StringRef domain, StringRef name) { return (domain + ":" + name).str(); };
  for (const FunctionProto &function : model.functions())
    known.insert(key(function.domain(), function.name()));
  for (int i = 0; i < model.functions_size(); ++i)
    (void)proto::visitNodes(*model.mutable_functions(i)->mutable_node(), [&](const NodeProto &node) {
      for (const FunctionProto &function : all)
        if (function.domain() == node.domain() && function.name() == node.op_type() &&
            known.insert(key(node.domain(), node.op_type())).second)
          *model.add_functions() = function;
      return success();
    });
}

LogicalResult proto::inlineFunctions(ModelProto &model, bool isRewritten, Location loc) {
  if (!model.functions_size())
    return success();
  google::protobuf::RepeatedPtrField<FunctionProto> all = model.functions();
  int64_t newest = OpSchemaRegistry::DomainToVersionRange::Instance().Map().at("").second;
  for (FunctionProto &function : *model.mutable_functions()) {
    int64_t version = versionIn(function.opset_import(), "");
    bool changes = false;
    visitChanged(function, model, [&](NodeProto &) { changes = true; });
    Location at = namedLoc(loc.getContext(), function.name());
    if (changes && isRewritten)
      emitWarning(at) << "function " << function.domain() << "." << function.name()
                      << " stays as it is, in FP32: it is written for opset " << version
                      << " of ai.onnx, and the model for opset " << versionIn(model.opset_import(), "")
                      << "; save it with the model's opset to have its nodes rewritten";
    else if (changes && (version < oldestOpset || version > newest))
      return emitError(at) << "expected opset " << oldestOpset << " to " << newest << " of ai.onnx in function "
                           << function.domain() << "." << function.name() << ", got " << version;
    else
      adoptOpsets(function, model);
  }
  try {
    inliner::InlineLocalFunctions(model, /*convert_version=*/false);
  } catch (const std::exception &error) {
    return emitError(loc) << "expected functions that can be inlined, got: " << plainMessage(error.what());
  }
  if (model.functions_size())
    restoreCallees(model, all);
  return success();
}

void proto::forgetVersions(ModelProto &model) {
  auto forget = [](Opsets &opsets) {
    opsets.erase(llvm::remove_if(
                     opsets, [](const auto &opset) { return mpt::onnx::versionOfDomain(opset.domain()).has_value(); }),
                 opsets.end());
  };
  forget(*model.mutable_opset_import());
  for (FunctionProto &function : *model.mutable_functions()) {
    forget(*function.mutable_opset_import());
    (void)visitNodes(*function.mutable_node(), [](NodeProto &node) {
      if (mpt::onnx::versionOfDomain(node.domain()))
        node.clear_domain();
      return success();
    });
  }
}
