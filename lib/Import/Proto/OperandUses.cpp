// SPDX-License-Identifier: Apache-2.0
// Operands of calls, followed to the nodes of functions that read them.
#include "OperandUses.h"

#include "llvm/ADT/STLExtras.h"

using namespace llvm;
using namespace mpt;
using namespace ::onnx;

static std::string keyOf(StringRef domain, StringRef name) { return (domain + "\n" + name).str(); }

proto::OperandUses::OperandUses(const ModelProto &model) {
  for (const FunctionProto &function : model.functions())
    functions[keyOf(function.domain(), function.name())] = &function;
}

bool proto::OperandUses::any(const NodeProto &node, int operand, bool (*is)(StringRef, StringRef, unsigned)) {
  return any_of(readersOf(node, operand), [&](const Reader &reader) {
    return is(reader.node->domain(), reader.node->op_type(), static_cast<unsigned>(reader.operand));
  });
}

SmallVector<proto::OperandUses::Reader> proto::OperandUses::readersOf(const NodeProto &node, int operand) {
  std::string key = keyOf(node.domain(), node.op_type());
  const FunctionProto *function = functions.lookup(key);
  if (!function)
    return {{&node, operand}};
  if (operand >= function->input_size())
    return {};
  key += "\n" + std::to_string(operand);
  // A function that calls itself is refused later.
  if (auto [entry, isNew] = known.try_emplace(key); !isNew)
    return entry->second;
  SmallVector<Reader> readers;
  SmallVector<StringRef> work{function->input(operand)};
  for (size_t i = 0; i < work.size(); ++i)
    for (const NodeProto &inner : function->node())
      for (auto [k, input] : enumerate(inner.input())) {
        if (input != work[i])
          continue;
        append_range(readers, readersOf(inner, static_cast<int>(k)));
        if (k == 0 && moves(inner.domain(), inner.op_type()))
          append_range(work, inner.output());
      }
  return known[key] = std::move(readers);
}
