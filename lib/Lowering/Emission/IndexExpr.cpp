// SPDX-License-Identifier: Apache-2.0
// Affine index expressions with exact division by constants.
#include "mpt/Lowering/Emission/IndexExpr.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mpt;

int64_t IndexExpr::coefficient(unsigned variable) const {
  for (const Term &term : terms)
    if (term.variable == variable)
      return term.coefficient;
  return 0;
}

unsigned IndexSpace::add(Variable variable) {
  variables.push_back(std::move(variable));
  return variables.size() - 1;
}

IndexExpr IndexSpace::add(const IndexExpr &a, const IndexExpr &b) {
  IndexExpr sum(a.constant + b.constant);
  auto x = a.terms.begin(), y = b.terms.begin();
  while (x != a.terms.end() || y != b.terms.end()) {
    if (y == b.terms.end() || (x != a.terms.end() && x->variable < y->variable)) {
      sum.terms.push_back(*x++);
    } else if (x == a.terms.end() || y->variable < x->variable) {
      sum.terms.push_back(*y++);
    } else {
      if (int64_t c = x->coefficient + y->coefficient)
        sum.terms.push_back({x->variable, c});
      ++x, ++y;
    }
  }
  simplify(sum);
  return sum;
}

/// As simplify, for a remainder that was found in outer loops. False: nothing to join.
bool IndexSpace::joinHoisted(IndexExpr &a) {
  for (const IndexExpr::Term &term : a.terms) {
    auto found = hoisted.find(term.variable);
    if (found == hoisted.end() || term.coefficient % variables[term.variable].divisor != 0)
      continue;
    int64_t factor = term.coefficient / variables[term.variable].divisor;
    IndexExpr rest = scale(found->second, factor);
    auto isThere = [&](const IndexExpr::Term &part) { return a.coefficient(part.variable) == part.coefficient; };
    if (!llvm::all_of(rest.terms, isThere))
      continue;
    IndexExpr others(a.constant - rest.constant);
    for (const IndexExpr::Term &other : a.terms)
      if (other.variable != term.variable && rest.coefficient(other.variable) == 0)
        others.terms.push_back(other);
    a = add(others, scale(variables[term.variable].source, factor));
    return true;
  }
  return false;
}

/// (a mod k) m + (a div k) m k is a m, which undoes a split of an index into coordinates.
void IndexSpace::simplify(IndexExpr &a) {
  if (joinHoisted(a))
    return;
  for (const IndexExpr::Term &term : a.terms) {
    const Variable &rest = variables[term.variable];
    if (rest.kind != Kind::Remainder)
      continue;
    auto found = interned.find({Kind::Quotient, rest.source, rest.divisor});
    if (found == interned.end() || a.coefficient(found->second) != term.coefficient * rest.divisor)
      continue;
    IndexExpr whole = scale(rest.source, term.coefficient), others(a.constant);
    for (const IndexExpr::Term &other : a.terms)
      if (other.variable != term.variable && other.variable != found->second)
        others.terms.push_back(other);
    a = add(others, whole);
    return;
  }
}

IndexExpr IndexSpace::scale(const IndexExpr &a, int64_t factor) {
  IndexExpr result(a.constant * factor);
  if (factor != 0)
    for (const IndexExpr::Term &term : a.terms)
      result.terms.push_back({term.variable, term.coefficient * factor});
  return result;
}

unsigned IndexSpace::alignedWidth(const IndexExpr &a, unsigned unit) const {
  unsigned width = 0;
  for (const IndexExpr::Term &term : a.terms)
    if (variables[term.variable].lane) {
      if (!variables[term.variable].contiguous || term.coefficient != 1 || width)
        return 0;
      width = variables[term.variable].width;
    }
  if (!unit)
    unit = width;
  if (!width || width % unit != 0 || a.constant % unit != 0)
    return 0;
  for (const IndexExpr::Term &term : a.terms)
    if (!variables[term.variable].lane && term.coefficient % unit != 0)
      return 0;
  return width;
}

unsigned IndexSpace::derived(Kind kind, const IndexExpr &source, int64_t divisor) {
  auto [slot, inserted] = interned.try_emplace({kind, source, divisor}, 0);
  if (inserted) {
    Variable variable;
    variable.kind = kind;
    variable.source = source;
    variable.divisor = divisor;
    variable.depth = depth(source);
    variable.lane = isLane(source);
    if (unsigned width = alignedWidth(source); variable.lane && width > 1 && divisor % width == 0) {
      // No vector straddles a multiple of the divisor: all lanes share the quotient.
      variable.lane = variable.contiguous = kind == Kind::Remainder;
      variable.width = width;
    }
    variable.extent = kind == Kind::Remainder ? divisor : maximum(source) / divisor + 1;
    slot->second = add(std::move(variable));
  }
  return slot->second;
}

/// Whether `a` is a remainder by a multiple of `divisor`.
bool IndexSpace::isRemainder(const IndexExpr &a, int64_t divisor) const {
  if (a.constant != 0 || a.terms.size() != 1 || a.terms.front().coefficient != 1)
    return false;
  const Variable &variable = variables[a.terms.front().variable];
  return variable.kind == Kind::Remainder && variable.divisor % divisor == 0;
}

/// `source` mod `divisor` by (a mod k m) mod k = a mod k, which multiples of k have no part in; none where that changes
/// in the same loops as `source`.
std::optional<IndexExpr> IndexSpace::hoistedRemainder(const IndexExpr &source, int64_t divisor) {
  IndexExpr whole = source;
  while (isRemainder(whole, divisor))
    whole = IndexExpr(variables[whole.terms.front().variable].source);
  IndexExpr rest(whole.constant % divisor);
  for (const IndexExpr::Term &term : whole.terms)
    if (term.coefficient % divisor != 0)
      rest.terms.push_back(term);
  if (whole == source || whole.constant < 0 || minimum(rest) < 0 || depth(rest) >= depth(source))
    return std::nullopt;
  return maximum(rest) < divisor ? rest : IndexExpr::variable(derived(Kind::Remainder, rest, divisor));
}

std::pair<IndexExpr, IndexExpr> IndexSpace::divide(const IndexExpr &a, int64_t divisor) {
  if (divisor == 1)
    return {a, IndexExpr(0)};
  IndexExpr quotient(llvm::divideFloorSigned(a.constant, divisor)), rest(a.constant - quotient.constant * divisor);
  for (const IndexExpr::Term &term : a.terms) {
    if (term.coefficient % divisor == 0)
      quotient.terms.push_back({term.variable, term.coefficient / divisor});
    else
      rest.terms.push_back(term);
  }
  if (minimum(rest) >= 0 && maximum(rest) < divisor)
    return {quotient, rest};
  // A remainder of the whole that is known to be non-negative; the parts that divide evenly stay outside.
  IndexExpr source = minimum(rest) >= 0 ? rest : a;
  if (!(source == rest))
    quotient = IndexExpr(0);
  IndexExpr q = IndexExpr::variable(derived(Kind::Quotient, source, divisor));
  if (std::optional<IndexExpr> outer =
          hoistsRemainders ? hoistedRemainder(source, divisor) : std::optional<IndexExpr>()) {
    hoisted.insert({q.terms.front().variable, *outer});
    return {add(quotient, q), *outer};
  }
  IndexExpr r = IndexExpr::variable(derived(Kind::Remainder, source, divisor));
  return {add(quotient, q), r};
}

IndexExpr IndexSpace::linearize(llvm::ArrayRef<IndexExpr> at, llvm::ArrayRef<int64_t> shape) {
  IndexExpr linear(0);
  for (auto [index, extent] : llvm::zip_equal(at, shape))
    linear = add(scale(linear, extent), index);
  return linear;
}

llvm::SmallVector<IndexExpr> IndexSpace::delinearize(IndexExpr linear, llvm::ArrayRef<int64_t> shape) {
  llvm::SmallVector<IndexExpr> at(shape.size());
  // From the outside in, so that each remainder is one variable that the next split starts from.
  int64_t inner = 1;
  for (int64_t extent : shape)
    inner *= extent;
  for (auto [i, extent] : llvm::enumerate(shape)) {
    if (inner == 0)
      break;
    inner /= extent;
    if (extent == 1)
      continue;
    auto [q, r] = divide(linear, inner);
    at[i] = q;
    linear = r;
  }
  return at;
}

unsigned IndexSpace::depth(const IndexExpr &a) const {
  unsigned result = 0;
  for (const IndexExpr::Term &term : a.terms)
    result = std::max(result, variables[term.variable].depth);
  return result;
}
unsigned IndexSpace::depth(llvm::ArrayRef<IndexExpr> at) const {
  unsigned result = 0;
  for (const IndexExpr &index : at)
    result = std::max(result, depth(index));
  return result;
}
bool IndexSpace::isLane(const IndexExpr &a) const {
  return llvm::any_of(a.terms, [&](const IndexExpr::Term &term) { return variables[term.variable].lane; });
}
bool IndexSpace::isLane(llvm::ArrayRef<IndexExpr> at) const {
  return llvm::any_of(at, [&](const IndexExpr &index) { return isLane(index); });
}
int64_t IndexSpace::minimum(const IndexExpr &a) const {
  int64_t result = a.constant;
  for (const IndexExpr::Term &term : a.terms)
    if (term.coefficient < 0)
      result += term.coefficient * (variables[term.variable].extent - 1);
  return result;
}
int64_t IndexSpace::maximum(const IndexExpr &a) const {
  int64_t result = a.constant;
  for (const IndexExpr::Term &term : a.terms)
    if (term.coefficient > 0)
      result += term.coefficient * (variables[term.variable].extent - 1);
  return result;
}
