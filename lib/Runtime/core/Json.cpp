// SPDX-License-Identifier: Apache-2.0
// Recursive-descent JSON.
#include "core/Json.h"

#include <charconv>
#include <cstdio>
#include <cstdlib>

namespace mpt::rt {
namespace {

constexpr int maxDepth = 32;
constexpr int maxValues = 4 << 20; // a tree takes some 100 bytes a value

class Parser {
  std::string_view text;
  size_t at = 0;
  int values = 0;
  std::string &error;

public:
  Parser(std::string_view text, std::string &error) : text(text), error(error) {}

  bool whole(Json &out) {
    if (!value(out, 0))
      return false;
    space();
    return at == text.size() || fail("unexpected text after the value");
  }

private:
  bool fail(const char *what) {
    if (error.empty())
      error = std::string(what) + " at byte " + std::to_string(at);
    return false;
  }

  void space() {
    while (at < text.size() && (text[at] == ' ' || text[at] == '\t' || text[at] == '\n' || text[at] == '\r'))
      ++at;
  }

  bool eat(char c) {
    space();
    if (at >= text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }

  bool word(std::string_view w) {
    if (text.substr(at, w.size()) != w)
      return fail("unexpected character");
    at += w.size();
    return true;
  }

  bool value(Json &out, int depth) {
    if (depth > maxDepth)
      return fail("nesting is too deep");
    if (++values > maxValues)
      return fail("too many values");
    space();
    if (at >= text.size())
      return fail("unexpected end of text");
    switch (text[at]) {
    case '{':
      return object(out, depth);
    case '[':
      return array(out, depth);
    case '"':
      out.kind = Json::String;
      return string(out.string);
    case 't':
      out.kind = Json::Bool;
      out.integer = 1;
      return word("true");
    case 'f':
      out.kind = Json::Bool;
      return word("false");
    case 'n':
      return word("null");
    default:
      return number(out);
    }
  }

  bool object(Json &out, int depth) {
    out.kind = Json::Object;
    ++at;
    if (eat('}'))
      return true;
    do {
      space();
      out.object.emplace_back();
      auto &[name, member] = out.object.back();
      if (!string(name))
        return false;
      if (!eat(':'))
        return fail("expected ':'");
      if (!value(member, depth + 1))
        return false;
    } while (eat(','));
    return eat('}') || fail("expected ',' or '}'");
  }

  bool array(Json &out, int depth) {
    out.kind = Json::Array;
    ++at;
    if (eat(']'))
      return true;
    do {
      out.array.emplace_back();
      if (!value(out.array.back(), depth + 1))
        return false;
    } while (eat(','));
    return eat(']') || fail("expected ',' or ']'");
  }

  static bool digit(char c) { return c >= '0' && c <= '9'; }

  bool number(Json &out) {
    size_t begin = at;
    bool integral = true;
    auto digits = [&] {
      size_t first = at;
      while (at < text.size() && digit(text[at]))
        ++at;
      return at > first;
    };
    if (at < text.size() && text[at] == '-')
      ++at;
    size_t lead = at;
    if (!digits())
      return fail("unexpected character");
    if (text[lead] == '0' && at > lead + 1)
      return fail("number with a leading zero");
    if (at < text.size() && text[at] == '.') {
      integral = false;
      ++at;
      if (!digits())
        return fail("expected a digit");
    }
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
      integral = false;
      ++at;
      if (at < text.size() && (text[at] == '+' || text[at] == '-'))
        ++at;
      if (!digits())
        return fail("expected a digit");
    }
    std::string copy(text.substr(begin, at - begin));
    out.kind = Json::Number;
    // Not strtod, which wants the decimal separator of the program's locale.
    if (std::from_chars(copy.data(), copy.data() + copy.size(), out.number).ec != std::errc())
      return fail("number beyond the range of doubles");
    out.integral = integral && copy.size() <= 18; // below 10^18: no overflow
    if (out.integral)
      out.integer = strtoll(copy.c_str(), nullptr, 10);
    return true;
  }

  bool hex4(uint32_t &out) {
    out = 0;
    for (int i = 0; i < 4; ++i, ++at) {
      char c = at < text.size() ? text[at] : 0;
      uint32_t d = digit(c) ? static_cast<uint32_t>(c - '0') : static_cast<uint32_t>((c | 32) - 'a' + 10);
      if (!digit(c) && !((c | 32) >= 'a' && (c | 32) <= 'f'))
        return fail("expected four hexadecimal digits");
      out = out << 4 | d;
    }
    return true;
  }

  static void appendUtf8(std::string &out, uint32_t c) {
    auto tail = [&](int shift) { out += static_cast<char>(0x80 | (c >> shift & 0x3f)); };
    if (c < 0x80) {
      out += static_cast<char>(c);
    } else if (c < 0x800) {
      out += static_cast<char>(0xc0 | c >> 6);
      tail(0);
    } else if (c < 0x10000) {
      out += static_cast<char>(0xe0 | c >> 12);
      tail(6), tail(0);
    } else {
      out += static_cast<char>(0xf0 | c >> 18);
      tail(12), tail(6), tail(0);
    }
  }

  bool escape(std::string &out) {
    char c = at < text.size() ? text[at++] : 0;
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    for (int i = 0; from[i]; ++i)
      if (c == from[i]) {
        out += to[i];
        return true;
      }
    uint32_t code = 0, low = 0;
    if (c != 'u')
      return fail("unknown escape");
    if (!hex4(code))
      return false;
    if (code >= 0xdc00 && code < 0xe000)
      return fail("unpaired surrogate");
    if (code >= 0xd800 && code < 0xdc00) {
      if (text.substr(at, 2) != "\\u")
        return fail("unpaired surrogate");
      at += 2;
      if (!hex4(low))
        return false;
      if (low < 0xdc00 || low >= 0xe000)
        return fail("unpaired surrogate");
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    appendUtf8(out, code);
    return true;
  }

  bool string(std::string &out) {
    if (at >= text.size() || text[at] != '"')
      return fail("expected '\"'");
    ++at;
    while (at < text.size()) {
      char c = text[at++];
      if (c == '"')
        return true;
      if (static_cast<unsigned char>(c) < 0x20)
        return fail("control character in a string");
      if (c == '\\') {
        if (!escape(out))
          return false;
      } else {
        out += c;
      }
    }
    return fail("string without end");
  }
};

} // namespace

const Json *Json::find(std::string_view name) const {
  for (const auto &[key, member] : object)
    if (key == name)
      return &member;
  return nullptr;
}

bool parseJson(std::string_view text, Json &out, std::string &error) {
  error.clear();
  out = Json();
  return Parser(text, error).whole(out);
}

void appendJsonString(std::string &out, std::string_view text) {
  out += '"';
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      snprintf(code, sizeof code, "\\u%04x", c);
      out += code;
    } else {
      out += c;
    }
  }
  out += '"';
}

} // namespace mpt::rt
