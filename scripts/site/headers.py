# SPDX-License-Identifier: Apache-2.0
"""Headers of C and C++ as pages: each declaration below the comment that stands before it."""
import re

SECTION = re.compile(r"^/\* -{2,} (.+?) -{2,} \*/$")
NOISE = re.compile(r'^(#|extern "C" \{|\}$|\} // (extern|namespace)|namespace \w+ \{|// SPDX)')


def plain(text):
    """Text as it is, for Markdown: no brackets are tags, no asterisks mark words. Code between backquotes stays."""
    return "".join(part if part.startswith("`") else re.sub(r"([\\*])", r"\\\1", part).replace("<", "&lt;")
                   for part in re.split(r"(`[^`]*`)", text))


def comment(lines):
    """The text of a comment's lines."""
    bare = [re.sub(r"^\s*(/\*\*?|\*/|///?|\*)?\s?", "", line.replace("*/", "")).rstrip() for line in lines]
    return plain("\n".join(bare).strip())


def parts(text):
    """("comment" | "section" | "code", lines) of a header, in order; blank lines end a declaration outside of braces."""
    lines, i = text.splitlines(), 0
    while i < len(lines):
        line, start = lines[i], i
        if section := SECTION.match(line):
            yield "section", [section[1]]
        elif line.startswith("/*") and "*/" in line and not line.rstrip().endswith("*/"):
            yield "code", [line]
        elif line.startswith("/*"):
            while "*/" not in lines[i]:
                i += 1
            yield "comment", lines[start:i + 1]
        elif line.startswith("//") and not NOISE.match(line):
            while i + 1 < len(lines) and lines[i + 1].startswith("//"):
                i += 1
            yield "comment", lines[start:i + 1]
        elif line.startswith("#"):
            while lines[i].endswith("\\"):
                i += 1
        elif line.strip() and not NOISE.match(line):
            depth = line.count("{") - line.count("}")
            while i + 1 < len(lines) and (depth or lines[i + 1].strip()) and not NOISE.match("" if depth else lines[i + 1]):
                if not depth and lines[i + 1].startswith("/"):
                    break
                i += 1
                depth += lines[i].count("{") - lines[i].count("}")
            yield "code", lines[start:i + 1]
        elif not line.strip():
            yield "blank", []
        i += 1


def collapse(text, deepest):
    """The text without the parts in braces at a greater depth than `deepest`."""
    kept, depth = "", 0
    for letter in text:
        depth -= letter == "}"
        kept += letter if depth <= deepest else ""
        depth += letter == "{"
    return kept


def names(lines):
    """The functions, types and constants that a declaration introduces."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", "", "\n".join(lines), flags=re.S)
    outer = collapse(text, 0)
    found = re.findall(r"\{\}\s*(\w+);", outer) or re.findall(r"\b(?:class|struct) (\w+)[^;(<>]*\{\}", outer)
    found = found or re.findall(r"(\w+)\(", outer)[:8] or re.findall(r"(\w+);", outer)
    return list(dict.fromkeys(found))


def outline(text):
    """C++ without bodies of functions, initializers of members, and private members."""
    text = re.sub(r"\n+ *private:.*?(?=\n\};)", "", text, flags=re.S)
    is_class = re.match(r"(template <[^>]*> )?(class|struct)\b", text)
    return re.sub(r"(\n? +: [^;{}]*)? ?\{\}(?=\n|$)", ";", collapse(text, 1 if is_class else 0))


def page(path, text, language):
    """Markdown of a header: its first comment, then each declaration under its names."""
    result, said, first = [f"## {path}"], "", True
    for kind, lines in parts(text):
        if kind == "section":
            result.append(f"## {path}: {lines[0]}")
        elif kind == "comment":
            said = comment(lines)
            if first:  # the file's own
                result.append(said)
                said = ""
            first = False
        elif kind == "code":
            heading = ", ".join(f"`{name}`" for name in names(lines))
            shown = "\n".join(lines) if language == "c" else outline("\n".join(lines))
            result += [f"### {heading}" if heading else "", said, f"```{language}\n{shown}\n```"]
            said = ""
        elif said:  # a comment that stands alone
            result.append(said)
            said = ""
    return "\n\n".join(filter(None, result)) + "\n"
