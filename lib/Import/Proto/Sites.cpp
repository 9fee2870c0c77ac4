// SPDX-License-Identifier: Apache-2.0
// Where in the file a tensor comes from: noted in its metadata before preparation moves, renames and copies tensors.
#include "Sites.h"

#include "Pieces.h"
#include "Proto.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
constexpr StringLiteral siteKey = "mpt-site", useKey = "mpt-use", nameKey = "mpt-name", viewKey = "mpt-view";

template <typename Message> StringRef noteOf(const Message &message, StringRef key) {
  for (const StringStringEntryProto &entry : message.metadata_props())
    if (entry.key() == key)
      return entry.value();
  return {};
}

void addEntry(StringStringEntryProto &entry, StringRef key, const std::string &value) {
  entry.set_key(key.str());
  entry.set_value(value);
}

template <typename Message> void addNote(Message &message, StringRef key, const std::string &value) {
  addEntry(*message.add_metadata_props(), key, value);
}

void noteGraph(GraphProto &graph, const std::string &path) {
  for (auto [i, tensor] : llvm::enumerate(*graph.mutable_initializer()))
    if (tensor.data_type() != TensorProto::UNDEFINED) // an empty message would grow by its note
      addNote(tensor, siteKey, proto::sitePath(path, 'i', i));
  for (auto [i, sparse] : llvm::enumerate(*graph.mutable_sparse_initializer()))
    addNote(*sparse.mutable_values(), siteKey, proto::sitePath(path, 's', i));
  for (auto [i, node] : llvm::enumerate(*graph.mutable_node())) {
    if (node.input_size() == 0 && node.attribute_size() == 0) // reads and holds no tensor
      continue;
    std::string at = proto::sitePath(path, 'n', i);
    addNote(node, siteKey, at);
    for (auto [k, attribute] : llvm::enumerate(*node.mutable_attribute())) {
      std::string inner = proto::sitePath(at, 'a', k);
      if (attribute.has_t())
        addNote(*attribute.mutable_t(), siteKey, inner + "/t");
      if (attribute.has_sparse_tensor())
        addNote(*attribute.mutable_sparse_tensor()->mutable_values(), siteKey, inner + "/t");
      if (attribute.has_g())
        noteGraph(*attribute.mutable_g(), inner + "/g");
    }
  }
}
} // namespace

std::string proto::sitePath(const std::string &path, char kind, size_t index) {
  return path + "/" + kind + std::to_string(index);
}

std::string proto::newTensorPath(int64_t extent) { return "+" + std::to_string(extent); }

std::optional<int64_t> proto::newTensorExtent(StringRef path) {
  int64_t extent;
  return path.consume_front("+") && !path.getAsInteger(10, extent) ? std::optional(extent) : std::nullopt;
}

void proto::noteSites(ModelProto &model) {
  noteGraph(*model.mutable_graph(), "g");
  for (auto [i, info] : llvm::enumerate(*model.mutable_training_info())) {
    std::string path = sitePath("", 'l', i);
    if (info.has_algorithm())
      noteGraph(*info.mutable_algorithm(), path + "/a");
    if (info.has_initialization())
      noteGraph(*info.mutable_initialization(), path + "/b");
  }
}

void proto::noteUse(TensorProto &tensor, const NodeProto &node, int input) {
  if (StringRef at = noteOf(node, siteKey); !at.empty())
    addNote(tensor, useKey, (at + ":" + Twine(input)).str());
}

void proto::noteNew(TensorProto &tensor) { addNote(tensor, siteKey, newTensorPath(tensor.dims(0))); }

void proto::noteName(TensorProto &tensor, const std::string &name) { addNote(tensor, nameKey, name); }

void proto::noteView(TensorProto &tensor, const TensorProto &copy, const TensorView &view) {
  std::string text = noteOf(copy, siteKey).str();
  if (text.empty())
    return;
  text += ":" + std::to_string(view.offset);
  for (auto [extent, stride] : llvm::zip_equal(view.extents, view.strides))
    text += ":" + std::to_string(extent) + "*" + std::to_string(stride);
  for (int64_t element : view.elements)
    text += ":" + std::to_string(element);
  if (!view.function.empty())
    text += ":=" + view.function;
  addNote(tensor, viewKey, text);
}

/// As noteView() writes it.
static std::pair<std::string, TensorView> readView(StringRef text) {
  std::pair<std::string, TensorView> result;
  SmallVector<StringRef> parts;
  text.split(parts, ':');
  result.first = parts[0].str();
  parts[1].getAsInteger(10, result.second.offset);
  for (StringRef part : ArrayRef(parts).drop_front(2)) {
    if (part.consume_front("=")) {
      result.second.function = part.str();
      continue;
    }
    if (!part.contains('*')) {
      part.getAsInteger(10, result.second.elements.emplace_back());
      continue;
    }
    part.split('*').first.getAsInteger(10, result.second.extents.emplace_back());
    part.split('*').second.getAsInteger(10, result.second.strides.emplace_back());
  }
  return result;
}

void proto::copySite(const TensorProto &from, TensorProto &to) {
  if (StringRef path = noteOf(from, siteKey); !path.empty())
    addNote(to, siteKey, path.str());
}

TensorSite proto::siteOf(const TensorProto &tensor) {
  TensorSite site;
  site.path = noteOf(tensor, siteKey).str();
  site.name = noteOf(tensor, nameKey).str();
  for (const StringStringEntryProto &entry : tensor.metadata_props())
    if (entry.key() == useKey) {
      auto [node, operand] = StringRef(entry.value()).rsplit(':');
      int number = 0;
      if (!operand.getAsInteger(10, number))
        site.uses.emplace_back(node.str(), number);
    } else if (entry.key() == viewKey) {
      site.copies.push_back(readView(entry.value()));
    }
  return site;
}

/// The message, in which large raw data at the end of `path` are external data: they stay in the file `name`, which
/// `file` begins, until somebody looks at them.
static std::string withoutData(StringRef message, ArrayRef<uint32_t> path, const char *file, StringRef name) {
  std::string light;
  while (std::optional<proto::WireField> field = proto::nextField(message)) {
    const bool isNext = field->number == path.front(), isData = path.size() == 1;
    if (!isNext || field->value.size() < proto::mappedBytes) {
      light += field->whole;
    } else if (!isData) {
      std::string inner = withoutData(field->value, path.drop_front(), file, name);
      light += field->tag.str() + proto::varintText(inner.size()) + inner;
    } else {
      TensorProto outside;
      outside.set_data_location(TensorProto::EXTERNAL);
      addEntry(*outside.add_external_data(), "location", name.str());
      addEntry(*outside.add_external_data(), "offset", std::to_string(field->value.begin() - file));
      light += outside.SerializeAsString();
    }
  }
  return light + message.str();
}

/// As parseWithSites(), of which the file's large tensors are no part where they can be read from it later.
static LogicalResult parseFile(StringRef bytes, StringRef path, StringRef folder, ModelProto &model, Location loc) {
  SmallString<128> real, root;
  StringRef head = bytes.ltrim();
  if (head.starts_with("<") || head.starts_with("#") || llvm::sys::fs::real_path(path, real) ||
      llvm::sys::fs::real_path(folder, root) || llvm::sys::path::parent_path(real) != root)
    return proto::parseWithSites(bytes, model, loc);
  const uint32_t rawData[] = {ModelProto::kGraphFieldNumber, GraphProto::kInitializerFieldNumber,
                              TensorProto::kRawDataFieldNumber};
  return proto::parseWithSites(withoutData(bytes, rawData, bytes.begin(), llvm::sys::path::filename(path)), model, loc);
}

llvm::Expected<TensorSites> mpt::sitesOf(StringRef path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return llvm::createStringError("cannot open '" + path + "': " + file.getError().message());
  // Diagnostics have a handler only with a context.
  MLIRContext context(MLIRContext::Threading::DISABLED);
  std::string message;
  context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) { message = diagnostic.str(); });
  ModelProto model;
  TensorSites sites;
  Location loc = proto::namedLoc(&context, path);
  StringRef folder = llvm::sys::path::parent_path(path);
  folder = folder.empty() ? "." : folder;
  if (failed(parseFile((*file)->getBuffer(), path, folder, model, loc)))
    return llvm::createStringError("'" + path + "': " + message);
  proto::DeclaredParameters declared = proto::declaredParameters(model.graph());
  if (failed(proto::liftTensors(model, &context)))
    return llvm::createStringError("'" + path + "': " + message);
  // Tensors that stay merged here are one state as well.
  proto::separateStatistics(model);
  proto::JoinedTensors joined;
  proto::SeparatedTensors separated;
  if (failed(proto::settleTensors(model, {}, folder, declared, joined, separated, loc)))
    return llvm::createStringError("'" + path + "': " + message);
  auto take = [&](const GraphProto &graph) {
    for (const TensorProto &tensor : graph.initializer())
      if (TensorSite site = proto::siteOf(tensor); site.isInFile())
        sites[tensor.name()] = std::move(site);
  };
  take(model.graph());
  for (const TrainingInfoProto &info : model.training_info())
    take(info.algorithm());
  return sites;
}
