// SPDX-License-Identifier: Apache-2.0
// Sums of few terms down columns, which threads of a block share on a GPU: every kind and type, numbers of points that
// leave threads without any, and other operands and results of such kernels.
#include "KernelChecks.h"

#include <string>

namespace {

/// `text` with `to` for every `from`.
std::string replaced(std::string text, const std::string &from, const std::string &to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
  return text;
}

/// Values that 16-bit types hold too: multiples of 2^-5 below 2.
TestTensor quotients(std::vector<int64_t> shape) {
  return fill(std::move(shape), [](int64_t i) { return static_cast<double>(i * 37 % 127 - 63) / 32; });
}

/// All kinds over [terms, points], beside elements that the sums are made of.
void kinds(int64_t terms, int64_t points, const char *type) {
  const bool isNarrow = std::string(type) != "f32";
  std::string text = R"(func.func @f(%x: NARROW) -> (NARROW, ROW, ROW, ROW) {
    %r = mpt.relu %x : NARROW
    CAST
    %s = mpt.reduce sum %w {axes = array<i64: 0>} : (WIDE) -> ROW
    %m = mpt.reduce mean %w {axes = array<i64: 0>} : (WIDE) -> ROW
    %l = mpt.reduce max %w {axes = array<i64: 0>} : (WIDE) -> ROW
    return %r, %s, %m, %l : NARROW, ROW, ROW, ROW
  })";
  text = isNarrow ? replaced(text, "CAST", "%w = mpt.cast %r : NARROW to WIDE")
                  : replaced(replaced(text, "CAST", ""), "%w", "%r");
  text = replaced(replaced(text, "NARROW", "tensor<TERMSxPOINTSxTYPE>"), "WIDE", "tensor<TERMSxPOINTSxf32>");
  text = replaced(replaced(text, "ROW", "tensor<POINTSxf32>"), "TYPE", type);
  text = replaced(replaced(text, "TERMS", std::to_string(terms)), "POINTS", std::to_string(points));
  TestTensor x = quotients({terms, points});
  std::vector<double> relu, sums(points), means(points), largest(points);
  for (int64_t i = 0; i < x.count(); ++i) {
    relu.push_back(std::max(x.values[i], 0.0));
    sums[i % points] += relu.back();
    means[i % points] += relu.back() / static_cast<double>(terms);
    largest[i % points] = std::max(largest[i % points], relu.back());
  }
  expect("short columns", runKernel(text, {x}), {relu, sums, means, largest}, 0x1p-23);
}

/// The largest of 16-bit numbers, NaN among them, along the middle of a channels-last image.
void magnitudes() {
  const char *text = R"(func.func @f(%x: tensor<3x16x5x14xbf16>) -> (tensor<3x16x5x14xbf16>, tensor<3x16x5xbf16>) {
    %r = mpt.relu %x : tensor<3x16x5x14xbf16>
    %a = mpt.abs %r : tensor<3x16x5x14xbf16>
    %m = mpt.reduce max %a {axes = array<i64: 3>} : (tensor<3x16x5x14xbf16>) -> tensor<3x16x5xbf16>
    return %r, %m : tensor<3x16x5x14xbf16>, tensor<3x16x5xbf16>
  })";
  TestTensor x = quotients({3, 16, 5, 14});
  x.strides = {16 * 5 * 14, 1, 16 * 14, 16};
  x.values[14 * 7 + 11] = NAN;
  std::vector<double> relu, largest(x.count() / 14);
  for (int64_t i = 0; i < x.count(); ++i) {
    double value = x.values[i];
    relu.push_back(value < 0 ? 0 : value);
    double &most = largest[i / 14];
    most = std::isnan(most) || std::isnan(value) ? NAN : std::max(most, value);
  }
  expect("short columns of an image", runKernel(text, {x}, {x.strides, {}}), {relu, largest}, 0);
}

/// Two axes that neither touch nor lie last, integers and flags.
void integers() {
  const char *text = R"(func.func @f(%x: tensor<4x5x6x8xi32>) -> (tensor<5x8xi32>, tensor<5x8xi1>) {
    %s = mpt.reduce sum %x {axes = array<i64: 0, 2>} : (tensor<4x5x6x8xi32>) -> tensor<5x8xi32>
    %c = mpt.constant dense<40> : tensor<4x5x6x8xi32>
    %g = mpt.compare gt %x, %c : tensor<4x5x6x8xi32>
    %a = mpt.reduce max %g {axes = array<i64: 0, 2>} : (tensor<4x5x6x8xi1>) -> tensor<5x8xi1>
    return %s, %a : tensor<5x8xi32>, tensor<5x8xi1>
  })";
  TestTensor x = fill({4, 5, 6, 8}, [](int64_t i) { return static_cast<double>(i * i % 61 - 19); });
  std::vector<double> sums(40), above(40);
  for (int64_t i = 0; i < 4; ++i)
    for (int64_t j = 0; j < 5; ++j)
      for (int64_t k = 0; k < 6; ++k)
        for (int64_t l = 0; l < 8; ++l) {
          sums[j * 8 + l] += x({i, j, k, l});
          above[j * 8 + l] = std::max<double>(above[j * 8 + l], x({i, j, k, l}) > 40);
        }
  expect("short columns of integers", runKernel(text, {x}), {sums, above}, 0);
}

/// Results that read other columns' sums, which the threads of a column do not have.
void elsewhere() {
  const char *text = R"(func.func @f(%x: tensor<16x24x24xf32>) -> tensor<24x24xf32> {
    %s = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<16x24x24xf32>) -> tensor<24x24xf32>
    %t = mpt.transpose %s {permutation = array<i64: 1, 0>} : (tensor<24x24xf32>) -> tensor<24x24xf32>
    %y = mpt.sub %s, %t : tensor<24x24xf32>
    return %y : tensor<24x24xf32>
  })";
  TestTensor x = quotients({16, 24, 24});
  std::vector<double> want;
  for (int64_t i = 0; i < 24; ++i)
    for (int64_t j = 0; j < 24; ++j) {
      want.push_back(0);
      for (int64_t k = 0; k < 16; ++k)
        want.back() += x({k, i, j}) - x({k, j, i});
    }
  expect("short columns read elsewhere", runKernel(text, {x}), {want}, 0);
}

/// Partial sums that threads exchange are FP64: terms that cancel between threads leave the small ones beside them.
void cancelling() {
  TestTensor x = fill({16, 256}, [](int64_t i) {
    int64_t term = i / 256;
    return term % 4 == 1 ? 0x1p30 : term % 4 == 3 ? -0x1p30 : term == 0 ? 1 : 0;
  });
  expect("cancelling short columns",
         runKernel(R"(func.func @f(%x: tensor<16x256xf32>) -> tensor<256xf32> {
    %s = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<16x256xf32>) -> tensor<256xf32>
    return %s : tensor<256xf32>
  })",
                   {x}),
         {std::vector<double>(256, 1)}, 0);
}

void everything() {
  for (const char *type : {"f32", "f16", "bf16"})
    for (auto [terms, points] : {std::pair<int64_t, int64_t>{16, 768}, {14, 600}, {12, 1001}, {56, 64}, {2, 40}})
      kinds(terms, points, type);
  magnitudes();
  integers();
  elsewhere();
  cancelling();
}

} // namespace

int main() {
  everything(); // a processor's kernels
  testDevice = true;
  everything();
  if (!metSchedules.count("short-columns")) {
    std::printf("no kernel has schedule short-columns\n");
    ++failures;
  }
  if (failures)
    std::printf("%d failures\n", failures);
  return failures != 0;
}
