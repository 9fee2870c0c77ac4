// SPDX-License-Identifier: Apache-2.0
// Templates of model files, read off the wire format: fields that nobody asked for keep their bytes. When a model is
// saved, lib/Runtime/core/TemplateFiller.cpp puts values in their places.
#include "Pieces.h"
#include "Proto.h"
#include "Sites.h"
#include "TemplateData.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MemoryBuffer.h"

#include <map>

using namespace mlir;
using namespace mpt;
using namespace mpt::proto;
using ::onnx::AttributeProto;
using ::onnx::FunctionProto;
using ::onnx::GraphProto;
using ::onnx::ModelProto;
using ::onnx::NodeProto;
using ::onnx::SparseTensorProto;
using ::onnx::StringStringEntryProto;
using ::onnx::TensorProto;
using ::onnx::TrainingInfoProto;

static constexpr uint32_t varint = 0, delimited = 2;

static std::string tagText(uint32_t number, uint32_t type) { return varintText(number << 3 | type); }

static void addVarint(Pieces &to, uint32_t number, uint64_t value) {
  to.addOwn(tagText(number, varint) + varintText(value));
}

static void addText(Pieces &to, uint32_t number, StringRef text) {
  to.addOwn(tagText(number, delimited) + varintText(text.size()) + text.str());
}

/// A field with new content.
static void addChanged(Pieces &to, const WireField &field, Pieces content) {
  to.addMessage(field.tag, std::move(content), StringRef(field.tag.end(), field.value.begin() - field.tag.end()));
}

namespace {
/// Name, type and place of a TensorProto's data, or of the dense form of a sparse one.
struct Header {
  std::string name;
  std::vector<int64_t> dims;
  int32_t type = 0;
  bool isExternal = false;
  DataRange range;
  StringRef location;

  int64_t count() const {
    int64_t count = 1;
    for (int64_t extent : dims)
      count *= extent;
    return count;
  }
  void readDims(const WireField &field);
  void readExternal(StringRef entry);
  void read(StringRef tensor);
};

class TemplateBuilder {
public:
  TemplateBuilder(StringRef bytes, ArrayRef<SavedTensor> tensors, TemplateData &data);
  /// The pieces of the model; a second call knows the places that the first one has found in the data files.
  Pieces build();
  std::string problem;

private:
  using Part = Pieces (TemplateBuilder::*)(StringRef, const std::string &);
  /// Copies a message, but for the fields that `parts` make anew: by number, with the kind of part in paths.
  struct Rule {
    uint32_t number;
    char kind; ///< of a path's part with an index; or the part itself where there is one
    Part part;
  };
  Pieces copy(StringRef message, const std::string &path, ArrayRef<Rule> rules);
  Pieces trainingInfo(StringRef bytes, const std::string &path);
  Pieces function(StringRef bytes, const std::string &path);
  Pieces graph(StringRef bytes, const std::string &path);
  Pieces node(StringRef bytes, const std::string &path);
  Pieces attribute(StringRef bytes, const std::string &path);
  Pieces tensor(StringRef bytes, const std::string &path);
  Pieces externalEntry(StringRef bytes, size_t file, uint64_t offset);
  Pieces dense(StringRef bytes, const std::string &path, const SavedTensor &saved);
  Pieces newTensor(const Header &header, const SavedTensor &saved);
  Pieces external(StringRef bytes, const std::string &path, const Header &header, const SavedTensor *saved);
  Place placeOf(const Header &header, const SavedTensor &saved);
  void fail(const Twine &message) {
    if (problem.empty())
      problem = message.str();
  }

  StringRef bytes;
  TemplateData &data;
  llvm::StringMap<const SavedTensor *> saved;                              ///< by path
  std::vector<const SavedTensor *> split;                                  ///< tensors that the file lacks or shares
  llvm::StringMap<std::vector<std::pair<int, const SavedTensor *>>> reads; ///< operands that read these, by node
  llvm::StringMap<Header> headers;                                         ///< of saved tensors, by path
};
} // namespace

void Header::readDims(const WireField &field) {
  if (field.type != delimited)
    dims.push_back(static_cast<int64_t>(field.varint));
  uint64_t extent = 0;
  for (StringRef rest = field.type == delimited ? field.value : StringRef(); takeVarint(rest, extent);)
    dims.push_back(static_cast<int64_t>(extent));
}

void Header::readExternal(StringRef entry) {
  StringRef key, value;
  while (std::optional<WireField> field = nextField(entry))
    (field->number == StringStringEntryProto::kKeyFieldNumber ? key : value) = field->value;
  if (key == "location")
    location = value;
  else if (key == "offset")
    (void)value.getAsInteger(10, range.offset);
}

void Header::read(StringRef tensor) {
  while (std::optional<WireField> field = nextField(tensor))
    switch (field->number) {
    case TensorProto::kDimsFieldNumber:
      readDims(*field);
      break;
    case TensorProto::kDataTypeFieldNumber:
      type = static_cast<int32_t>(field->varint);
      break;
    case TensorProto::kNameFieldNumber:
      name = field->value.str();
      break;
    case TensorProto::kDataLocationFieldNumber:
      isExternal = field->varint == TensorProto::EXTERNAL;
      break;
    case TensorProto::kExternalDataFieldNumber:
      readExternal(field->value);
      break;
    default:
      break;
    }
}

/// Of states that have one tensor of the file, the one with its name keeps it, else the first one.
TemplateBuilder::TemplateBuilder(StringRef bytes, ArrayRef<SavedTensor> tensors, TemplateData &data)
    : bytes(bytes), data(data) {
  for (const SavedTensor &tensor : tensors) {
    if (newTensorExtent(tensor.site.path)) {
      split.push_back(&tensor);
      for (const auto &[node, operand] : tensor.site.uses)
        reads[node].emplace_back(operand, &tensor);
      continue;
    }
    const SavedTensor *&known = saved[tensor.site.path];
    if (!known) {
      known = &tensor;
      continue;
    }
    const SavedTensor *other = &tensor;
    if (tensor.site.uses.empty() && !known->site.uses.empty())
      std::swap(known, other);
    split.push_back(other);
    for (const auto &[node, operand] : other->site.uses)
      reads[node].emplace_back(operand, other);
  }
}

Pieces TemplateBuilder::copy(StringRef message, const std::string &path, ArrayRef<Rule> rules) {
  Pieces result;
  std::map<uint32_t, size_t> counts;
  while (std::optional<WireField> field = nextField(message)) {
    const Rule *rule = llvm::find_if(rules, [&](const Rule &r) { return r.number == field->number; });
    if (rule == rules.end() || field->type != delimited) {
      result.add(field->whole);
      continue;
    }
    size_t index = counts[field->number]++;
    std::string inner =
        llvm::isUpper(rule->kind) ? path + "/" + llvm::toLower(rule->kind) : sitePath(path, rule->kind, index);
    if (llvm::isUpper(rule->kind) && index)
      fail("expected one message in field " + Twine(field->number) + " at '" + path + "', got several");
    addChanged(result, *field, (this->*rule->part)(field->value, inner));
  }
  if (!message.empty())
    fail("expected protobuf fields at '" + path + "', got other bytes");
  return result;
}

Pieces TemplateBuilder::build() {
  Pieces result;
  size_t functions = 0, infos = 0, graphs = 0;
  StringRef rest = bytes;
  while (std::optional<WireField> field = nextField(rest)) {
    if (field->number == ModelProto::kGraphFieldNumber && ++graphs == 1)
      addChanged(result, *field, graph(field->value, "g"));
    else if (field->number == ModelProto::kTrainingInfoFieldNumber)
      addChanged(result, *field, trainingInfo(field->value, sitePath("", 'l', infos++)));
    else if (field->number == ModelProto::kFunctionsFieldNumber)
      addChanged(result, *field, function(field->value, sitePath("", 'f', functions++)));
    else
      result.add(field->whole);
  }
  if (graphs != 1)
    fail("expected one graph in the file, got " + Twine(graphs));
  for (const auto &entry : saved)
    if (entry.getValue()->changes && !headers.contains(entry.getKey()))
      fail("'" + entry.getValue()->name + "': expected a tensor at '" + entry.getKey() +
           "' of the file, got none: it has changed since it was imported");
  return result;
}

Pieces TemplateBuilder::trainingInfo(StringRef message, const std::string &path) {
  return copy(message, path,
              {{TrainingInfoProto::kAlgorithmFieldNumber, 'A', &TemplateBuilder::graph},
               {TrainingInfoProto::kInitializationFieldNumber, 'B', &TemplateBuilder::graph}});
}

Pieces TemplateBuilder::function(StringRef message, const std::string &path) {
  return copy(message, path,
              {{FunctionProto::kNodeFieldNumber, 'n', &TemplateBuilder::node},
               {FunctionProto::kAttributeProtoFieldNumber, 'a', &TemplateBuilder::attribute}});
}

/// Of a tensor that shares its place with others.
static StringRef nameInFile(const SavedTensor &tensor) {
  return tensor.site.name.empty() ? tensor.name : tensor.site.name;
}

Pieces TemplateBuilder::graph(StringRef message, const std::string &path) {
  Pieces result;
  size_t nodes = 0, initializers = 0, sparse = 0;
  while (std::optional<WireField> field = nextField(message)) {
    if (field->number == GraphProto::kNodeFieldNumber) {
      addChanged(result, *field, node(field->value, sitePath(path, 'n', nodes++)));
    } else if (field->number == GraphProto::kInitializerFieldNumber) {
      addChanged(result, *field, tensor(field->value, sitePath(path, 'i', initializers++)));
    } else if (field->number == GraphProto::kSparseInitializerFieldNumber) {
      std::string at = sitePath(path, 's', sparse++);
      const SavedTensor *wanted = saved.lookup(at);
      if (!wanted || !wanted->changes) {
        result.add(field->whole);
        continue;
      }
      result.addOwn(tagText(GraphProto::kInitializerFieldNumber, delimited));
      result.addMessage("", dense(field->value, at, *wanted), "");
    } else {
      result.add(field->whole);
    }
  }
  if (path != "g")
    return result;
  for (const SavedTensor *tensor : split) {
    Header header = headers.lookup(tensor->site.path);
    if (std::optional<int64_t> extent = newTensorExtent(tensor->site.path)) {
      header.dims = {*extent};
      header.type = TensorProto::FLOAT;
    }
    header.name = nameInFile(*tensor);
    result.addOwn(tagText(GraphProto::kInitializerFieldNumber, delimited));
    result.addMessage("", newTensor(header, *tensor), "");
  }
  return result;
}

Pieces TemplateBuilder::node(StringRef message, const std::string &path) {
  Pieces result;
  size_t attributes = 0;
  int operands = 0;
  auto changed = reads.find(path);
  while (std::optional<WireField> field = nextField(message)) {
    if (field->number == NodeProto::kAttributeFieldNumber) {
      addChanged(result, *field, attribute(field->value, sitePath(path, 'a', attributes++)));
      continue;
    }
    const SavedTensor *other = nullptr;
    if (field->number == NodeProto::kInputFieldNumber) {
      int operand = operands++;
      if (changed != reads.end())
        for (const auto &[number, tensor] : changed->second)
          other = number == operand ? tensor : other;
    }
    if (other)
      addText(result, NodeProto::kInputFieldNumber, nameInFile(*other));
    else
      result.add(field->whole);
  }
  if (changed != reads.end())
    for (const auto &[number, tensor] : changed->second)
      if (number == operands) // that the node lacks
        addText(result, NodeProto::kInputFieldNumber, nameInFile(*tensor));
  return result;
}

Pieces TemplateBuilder::attribute(StringRef message, const std::string &path) {
  const std::string at = path + "/t";
  StringRef rest = message;
  const SavedTensor *wanted = saved.lookup(at);
  while (std::optional<WireField> field = wanted && wanted->changes ? nextField(rest) : std::nullopt) {
    if (field->number != AttributeProto::kSparseTensorFieldNumber)
      continue;
    Pieces result; // of a Constant: sparse_value becomes value
    addText(result, AttributeProto::kNameFieldNumber, "value");
    addVarint(result, AttributeProto::kTypeFieldNumber, AttributeProto::TENSOR);
    result.addOwn(tagText(AttributeProto::kTFieldNumber, delimited));
    result.addMessage("", dense(field->value, at, *wanted), "");
    return result;
  }
  return copy(message, path,
              {{AttributeProto::kTFieldNumber, 'T', &TemplateBuilder::tensor},
               {AttributeProto::kGFieldNumber, 'G', &TemplateBuilder::graph},
               {AttributeProto::kTensorsFieldNumber, 'u', &TemplateBuilder::tensor},
               {AttributeProto::kGraphsFieldNumber, 'h', &TemplateBuilder::graph}});
}

Place TemplateBuilder::placeOf(const Header &header, const SavedTensor &tensor) {
  int64_t width = elementBytes(header.type);
  if (!width)
    fail("'" + tensor.name + "': expected a type of 8 bits or more for a tensor that is saved, got ONNX data type " +
         Twine(header.type));
  return {tensor.source, tensor.average, header.type, header.count(), header.count() * width, tensor.view};
}

/// A TensorProto with its elements as raw data.
Pieces TemplateBuilder::newTensor(const Header &header, const SavedTensor &tensor) {
  Pieces result;
  for (int64_t extent : header.dims)
    addVarint(result, TensorProto::kDimsFieldNumber, static_cast<uint64_t>(extent));
  addVarint(result, TensorProto::kDataTypeFieldNumber, static_cast<uint64_t>(header.type));
  if (!header.name.empty())
    addText(result, TensorProto::kNameFieldNumber, header.name);
  Place place = placeOf(header, tensor);
  result.addOwn(tagText(TensorProto::kRawDataFieldNumber, delimited) + varintText(static_cast<uint64_t>(place.bytes)));
  result.add(std::move(place));
  return result;
}

/// The dense form of a SparseTensorProto.
Pieces TemplateBuilder::dense(StringRef message, const std::string &path, const SavedTensor &tensor) {
  Header header;
  while (std::optional<WireField> field = nextField(message)) {
    if (field->number == SparseTensorProto::kDimsFieldNumber) {
      header.readDims(*field);
    } else if (field->number == SparseTensorProto::kValuesFieldNumber) {
      Header values;
      values.read(field->value);
      header.type = values.type;
      header.name = values.name;
    }
  }
  headers[path] = header;
  return newTensor(header, tensor);
}

Pieces TemplateBuilder::tensor(StringRef message, const std::string &path) {
  Header header;
  header.read(message);
  const SavedTensor *wanted = saved.lookup(path);
  if (wanted)
    headers[path] = header;
  if (wanted && !wanted->changes && wanted->type != header.type)
    wanted = nullptr;
  if (header.isExternal)
    return external(message, path, header, wanted);
  Pieces result;
  if (!wanted) {
    result.add(message);
    return result;
  }
  Place place = placeOf(header, *wanted);
  auto width = static_cast<size_t>(place.bytes);
  bool placed = false;
  // Fields with an entry an element; packed floats have the bytes of raw data, and others become these.
  for (StringRef rest = message; std::optional<WireField> field = nextField(rest);) {
    bool packed =
        field->number == TensorProto::kFloatDataFieldNumber || field->number == TensorProto::kDoubleDataFieldNumber;
    bool holds = packed || field->number == TensorProto::kRawDataFieldNumber;
    bool other = field->number == TensorProto::kInt32DataFieldNumber ||
                 field->number == TensorProto::kInt64DataFieldNumber ||
                 field->number == TensorProto::kUint64DataFieldNumber;
    if (holds && field->type == delimited && field->value.size() == width && !placed) {
      Pieces content;
      content.add(place);
      addChanged(result, *field, std::move(content));
      placed = true;
    } else if (!holds && !other) {
      result.add(field->whole);
    }
  }
  if (!placed) {
    result.addOwn(tagText(TensorProto::kRawDataFieldNumber, delimited) + varintText(width));
    result.add(std::move(place));
  }
  return result;
}

/// The key of an entry of external data.
static StringRef keyOf(StringRef entry) {
  StringRef key;
  while (std::optional<WireField> field = nextField(entry))
    if (field->number == StringStringEntryProto::kKeyFieldNumber)
      key = field->value;
  return key;
}

/// An entry of external data, where the name of the file is known last.
Pieces TemplateBuilder::externalEntry(StringRef message, size_t file, uint64_t offset) {
  Pieces result;
  StringRef key = keyOf(message);
  while (std::optional<WireField> field = nextField(message)) {
    if (field->number != StringStringEntryProto::kValueFieldNumber || (key != "location" && key != "offset")) {
      result.add(field->whole);
      continue;
    }
    Pieces value;
    std::string number = std::to_string(offset);
    if (key == "location")
      value.addLocation(file);
    else if (uint64_t before = 0; !field->value.getAsInteger(10, before) && before == offset)
      value.add(field->value);
    else
      value.addOwn(std::move(number));
    addChanged(result, *field, std::move(value));
  }
  return result;
}

Pieces TemplateBuilder::external(StringRef message, const std::string &path, const Header &header,
                                 const SavedTensor *wanted) {
  Place place = wanted ? placeOf(header, *wanted) : Place();
  DataRange range = header.range;
  range.bytes = wanted ? place.bytes : header.count() * std::max<int64_t>(elementBytes(header.type), 1);
  size_t file = 0;
  if (llvm::Expected<size_t> found = data.fileOf(header.location))
    file = *found;
  else
    fail(llvm::toString(found.takeError()));
  uint64_t offset = data.take(file, path, range, wanted ? std::optional(place) : std::nullopt);
  Pieces result;
  bool hasOffset = false;
  while (std::optional<WireField> field = nextField(message)) {
    if (field->number != TensorProto::kExternalDataFieldNumber) {
      result.add(field->whole);
      continue;
    }
    StringRef key = keyOf(field->value);
    hasOffset |= key == "offset";
    if (!wanted || key != "checksum") // which no longer holds
      addChanged(result, *field, externalEntry(field->value, file, offset));
  }
  if (!hasOffset && offset != range.offset) {
    Pieces entry;
    addText(entry, StringStringEntryProto::kKeyFieldNumber, "offset");
    addText(entry, StringStringEntryProto::kValueFieldNumber, std::to_string(offset));
    result.addOwn(tagText(TensorProto::kExternalDataFieldNumber, delimited));
    result.addMessage("", std::move(entry), "");
  }
  return result;
}

/// The bytes of the file, or the binary form of its text, which `kept` holds.
static llvm::Expected<StringRef> binaryOf(StringRef path, std::unique_ptr<llvm::MemoryBuffer> &file,
                                          std::string &kept) {
  auto opened = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!opened)
    return llvm::createStringError("cannot open '" + path + "': " + opened.getError().message());
  file = std::move(*opened);
  StringRef bytes = file->getBuffer(), head = bytes.ltrim();
  if (!head.starts_with("<") && !head.starts_with("#"))
    return bytes;
  MLIRContext context(MLIRContext::Threading::DISABLED);
  context.getDiagEngine().registerHandler([](Diagnostic &) {});
  ModelProto model;
  if (failed(parseBytes(bytes, model, namedLoc(&context, path))))
    return llvm::createStringError("cannot read '" + path + "' again: it has changed since it was imported");
  kept = model.SerializeAsString();
  return StringRef(kept);
}

llvm::Error mpt::writeTemplate(StringRef model, ArrayRef<SavedTensor> tensors, StringRef out) {
  std::unique_ptr<llvm::MemoryBuffer> file;
  std::string kept;
  llvm::Expected<StringRef> bytes = binaryOf(model, file, kept);
  if (!bytes)
    return bytes.takeError();
  TemplateData data(model);
  TemplateBuilder builder(*bytes, tensors, data);
  builder.build();
  data.settle();
  Pieces pieces = builder.build();
  if (!builder.problem.empty())
    return llvm::createStringError(builder.problem);
  return data.write(pieces, out);
}
