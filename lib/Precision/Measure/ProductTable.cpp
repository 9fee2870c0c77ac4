// SPDX-License-Identifier: Apache-2.0
// Reads tables of measured products. They are written elsewhere and edited by hand: nothing in them is trusted.
#include "mpt/Precision/Products.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;
using namespace mpt;

namespace {

constexpr StringLiteral kFormat = "mpt-products";
constexpr int64_t kVersion = 1;
constexpr double kMostMicroseconds = 1e8; ///< no product takes minutes

/// A value as text, for messages.
std::string describe(const json::Value *value) {
  return value ? formatv("{0}", *value).str().substr(0, 80) : std::string("none");
}

class Reader {
public:
  Reader(StringRef path, ProductTable &table) : path(path), table(table) {}

  Error read(const json::Value &file) {
    const json::Object *top = file.getAsObject();
    if (!top || top->getString("format") != kFormat)
      return wrong("", "\"format\": \"" + kFormat + "\"", top ? top->get("format") : &file);
    if (top->getInteger("version") != kVersion)
      return wrong("", "version " + Twine(kVersion), top->get("version"));
    for (auto [key, text] : {std::pair<StringRef, std::string *>{"recipe", &table.recipe},
                             {"target", &table.target},
                             {"device", &table.device},
                             {"libraries", &table.libraries}}) {
      auto found = top->getString(key);
      if (!found)
        return wrong("", "a text for \"" + key + "\"", top->get(key));
      *text = found->str();
    }
    if (Error error = readRows(*top, "products", "product", [&](StringRef name, const json::Object &row) -> Error {
          ProductTable::Times times;
          for (auto [key, to] : {std::pair<StringRef, double *>{"us_16", &times.wide}, {"us_8", &times.narrow}})
            if (Error error = readTime(name, row, key, /*least=*/1e-6, *to))
              return error;
          return keep(table.products, name, times);
        }))
      return error;
    return readRows(*top, "conversions", "conversion", [&](StringRef name, const json::Object &row) -> Error {
      double time = 0.0;
      if (Error error = readTime(name, row, "us", 0.0, time))
        return error;
      return keep(table.conversions, name, time);
    });
  }

private:
  Error readRows(const json::Object &top, StringRef list, StringRef key,
                 function_ref<Error(StringRef, const json::Object &)> take) {
    const json::Array *rows = top.getArray(list);
    if (!rows)
      return wrong("", "a list of \"" + list + "\"", top.get(list));
    for (const json::Value &value : *rows) {
      const json::Object *row = value.getAsObject();
      auto name = row ? row->getString(key) : std::nullopt;
      if (!name)
        return wrong("", "rows with a \"" + key + "\" in \"" + list + "\"", &value);
      if (Error error = take(*name, *row))
        return error;
    }
    return Error::success();
  }

  Error readTime(StringRef row, const json::Object &object, StringRef key, double least, double &out) {
    auto number = object.getNumber(key);
    if (!number || !(*number >= least && *number <= kMostMicroseconds))
      return wrong(
          row, Twine("microseconds ") + (least > 0.0 ? "above 0" : "from 0") + ", of at most 1e8, for \"" + key + "\"",
          object.get(key));
    out = *number;
    return Error::success();
  }

  template <typename T> Error keep(StringMap<T> &map, StringRef name, const T &value) {
    if (map.try_emplace(name, value).second)
      return Error::success();
    return createStringError("'" + path + "': expected one row for '" + name + "', got two");
  }

  Error wrong(StringRef row, const Twine &expected, const json::Value *got) {
    return createStringError("'" + path + "'" + (row.empty() ? "" : ", '" + row + "'") + ": expected " + expected +
                             ", got " + describe(got) + "; python -m mpt.measure writes such tables");
  }

  StringRef path;
  ProductTable &table;
};

} // namespace

Expected<ProductTable> ProductTable::read(StringRef path) {
  auto buffer = MemoryBuffer::getFile(path);
  if (!buffer)
    return createStringError("cannot read the measured products in '" + path + "': " + buffer.getError().message());
  Expected<json::Value> value = json::parse((*buffer)->getBuffer());
  if (!value)
    return createStringError("'" + path + "' is not JSON: " + toString(value.takeError()));
  ProductTable table;
  table.path = path.str();
  if (Error error = Reader(path, table).read(*value))
    return std::move(error);
  return table;
}
