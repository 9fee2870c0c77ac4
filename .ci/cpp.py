# SPDX-License-Identifier: Apache-2.0
"""A reader of C++ text for the checks: comments and literals blanked, functions found by their braces.

It knows no more of C++ than the shape that clang-format gives it, which is enough to say where a function begins and ends.
"""
import re
from typing import NamedTuple

LITERAL = re.compile(r'//[^\n]*|/\*.*?\*/|R"([^ ()\\\n]{0,16})\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9A-Fa-f])\'(?:\\.|[^\'\\\n])*\'', re.S)
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.M)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum|extern)\b")
QUALIFIERS = re.compile(r"(?:\)|\]|\b(?:const|override|noexcept|final|mutable|try|else|do)|->[^()]*|&&?)$")
NAME = re.compile(r"((?:[\w~]+(?:<[^<>]*(?:<[^<>]*>)?[^<>]*>)?::)*(?:operator\s*(?:\(\)|\[\]|[^\s\w(]+|\w+)|~?\w+))\s*$")


class Function(NamedTuple):
    name: str  # as written: `Class::member` for a member defined outside its class
    scope: tuple  # names of the namespaces and classes around it, "" for one without a name
    first: int  # line numbers, from 1: the first line of the declaration
    last: int  # ... and of the closing brace
    body: str  # the text between its braces, blanked


def blank(text):
    """`text` with comments, literals and preprocessor directives turned to spaces; every character keeps its place."""
    def spaces(match):
        kept = match[0] if match[0][0] not in "/" and len(match[0]) < 3 else re.sub(r"[^\n]", " ", match[0])
        return kept
    return DIRECTIVE.sub(spaces, LITERAL.sub(spaces, text))


def _outside_angles(head):
    """`head` with the text inside <...> blanked, so that a template's parameters hide no bracket."""
    for _ in range(4):
        head = re.sub(r"<([^<>]*)>", lambda m: "\x01" + " " * len(m[1]) + "\x01", head)
    return head


def _name_before_parameters(head):
    flat = _outside_angles(head)
    at = flat.find("(")
    while at >= 0 and re.search(r"(?:__attribute__|alignas|decltype|noexcept|operator)\s*$", flat[:at]):
        depth, end = 0, at
        while end < len(flat):
            depth += {"(": 1, ")": -1}.get(flat[end], 0)
            end += 1
            if depth == 0:
                break
        at = flat.find("(", end)
    match = NAME.search(head[:at]) if at >= 0 else None
    return re.sub(r"\s+", " ", match[1]) if match else None


def _is_member_initializer(head):
    """Whether a brace after `head` opens `member{value}` of a constructor's list, and not the body."""
    flat = _outside_angles(head)
    return bool(re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", flat)) and not QUALIFIERS.search(flat.rstrip()) and \
        bool(re.search(r"[\w\x01]\s*$", flat))


def functions(text):
    """Every function defined in `text` at namespace or class scope, in order. Local ones belong to their function."""
    clean = blank(text)
    found, scope, start, at = [], [], 0, 0
    lines = [0]
    for match in re.finditer("\n", clean):
        lines.append(match.end())

    def line_of(position):
        low, high = 0, len(lines)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if lines[middle] <= position else (low, middle)
        return low

    def matching(position):
        depth = 0
        for brace in re.finditer(r"[{}]", clean[position:]):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                return position + brace.start()
        return len(clean)

    while at < len(clean):
        character = clean[at]
        if character == ";" and clean.count("(", start, at) == clean.count(")", start, at):
            start = at + 1
        elif character == "}":
            if scope:
                scope.pop()
            start = at + 1
        elif character == ":" and re.search(r"\b(?:public|private|protected)\s*$", clean[start:at]):
            start = at + 1
        elif character == "{":
            head = clean[start:at].strip()
            flat = _outside_angles(head)
            kind = SCOPE.search(re.sub(r"\([^()]*\)", "", flat))
            if kind and "(" not in re.sub(r"alignas\([^()]*\)|__attribute__\(\(.*?\)\)", "", flat):
                name = re.search(r"(?:namespace|class|struct|union|enum(?:\s+class)?|extern)\b\s*(?:alignas\([^()]*\)\s*)?([\w:]*)", head)
                scope.append(name[1] if name else "")
                start = at + 1
            elif "(" in flat and not re.search(r"=\s*$|^\s*using\b", flat) and not _initializes(flat):
                end = matching(at)
                if _is_member_initializer(head):
                    at = end + 1
                    continue
                first = start + len(clean[start:at]) - len(clean[start:at].lstrip())
                name = _name_before_parameters(head)
                if name:
                    found.append(Function(name, tuple(scope), line_of(first), line_of(end), clean[at + 1:end]))
                at = start = end + 1
                continue
            else:
                at = matching(at) + 1
                continue
        at += 1
    return found


def _initializes(flat):
    """Whether `flat` declares a variable with an initializer: an `=` outside brackets before the brace."""
    depth = 0
    for at, character in enumerate(flat):
        depth += {"(": 1, ")": -1, "[": 1, "]": -1}.get(character, 0)
        if character == "=" and depth == 0 and not re.search(r"operator\s*[=!<>+\-*/&|^]?=?$", flat[:at + 1].rstrip("=") + "=") \
                and flat[at - 1:at] not in "=!<>" and flat[at + 1:at + 2] != "=":
            return True
    return False
