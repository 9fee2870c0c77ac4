// SPDX-License-Identifier: Apache-2.0
// Generated kernels against plain loops in double precision: every kind of loop, several types and layouts, in vectors
// of every width that a target may ask for.
#include "KernelChecks.h"
#include "KernelRunner.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <random>

namespace {

void elementwise() {
  for (int64_t n : {1000, 5000}) {
    TestTensor x = uniform({n}, -3, 3), y = uniform({n}, -3, 3);
    std::string t = "tensor<" + std::to_string(n) + "xf32>";
    auto got =
        runKernel("func.func @f(%x: " + t + ", %y: " + t + ") -> (" + t + ", " + t + ") {\n%a = mpt.add %x, %y : " + t +
                      "\n%b = mpt.relu %a : " + t + "\nreturn %a, %b : " + t + ", " + t + "\n}",
                  {x, y});
    std::vector<double> sum, relu;
    for (int64_t i = 0; i < n; ++i) {
      sum.push_back(static_cast<float>(x.values[i] + y.values[i]));
      relu.push_back(std::max(sum.back(), 0.0));
    }
    expect("add and relu", got, {sum, relu}, 0);
  }
}

/// Short last axes join the ones before them.
void filters() {
  TestTensor x = uniform({5, 4, 3, 3}, -1, 1);
  std::vector<double> want;
  for (double v : x.values)
    want.push_back(v * 0.5);
  expect("filters",
         runKernel("func.func @f(%x: tensor<5x4x3x3xf32>) -> tensor<5x4x3x3xf32> {\n%c = mpt.constant "
                   "dense<0.5> : tensor<5x4x3x3xf32>\n%y = mpt.mul %x, %c : tensor<5x4x3x3xf32>\n"
                   "return %y : tensor<5x4x3x3xf32>\n}",
                   {x}),
         {want}, 0);
}

void functions() {
  struct Case {
    const char *op;
    double (*exact)(double);
    double low, high, ulp;
  };
  Case cases[] = {
      {"exp", [](double x) { return std::exp(x); }, -105, 90, 2},
      {"log", [](double x) { return std::log(x); }, 0, 3, 3},
      {"tanh", [](double x) { return std::tanh(x); }, -10, 10, 4},
      {"sigmoid", [](double x) { return 1 / (1 + std::exp(-x)); }, -100, 100, 4},
      {"erf", [](double x) { return std::erf(x); }, -5, 5, 4},
      {"sin", [](double x) { return std::sin(x); }, -1000, 1000, 3},
      {"cos", [](double x) { return std::cos(x); }, -1000, 1000, 3},
      {"softplus", [](double x) { return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x))); }, -80, 80, 4},
      {"rsqrt", [](double x) { return 1 / std::sqrt(x); }, 0, 100, 2},
  };
  for (const Case &c : cases) {
    TestTensor x = uniform({4096 + 7}, c.low, c.high);
    double special[] = {0.0, -0.0, INFINITY, -INFINITY, NAN, 1e-40, 1e-30, 1.0, -1.0, 3e38};
    std::copy(std::begin(special), std::end(special), x.values.begin());
    for (double &v : x.values)
      v = static_cast<float>(v);
    auto got = runKernel(std::string("func.func @f(%x: tensor<4103xf32>) -> tensor<4103xf32> {\n%a = mpt.") + c.op +
                             " %x : tensor<4103xf32>\nreturn %a : tensor<4103xf32>\n}",
                         {x});
    std::vector<double> want;
    for (double v : x.values) {
      double exact = c.exact(v);
      want.push_back(static_cast<float>(exact));
    }
    bool angle = std::string(c.op) == "sin" || std::string(c.op) == "cos";
    if (angle && !got.empty())
      want[9] = got[0].values[9]; // 3e38 is beyond the documented range
    expect(c.op, got, {want}, c.ulp * 0x1p-23, angle ? 2e-7 : 1.5e-45 * c.ulp);
  }
  TestTensor x = uniform({777}, -4, 4), y = uniform({777}, -6, 6);
  for (size_t i = 0; i < 200; ++i)
    y.values[i] = std::round(y.values[i]);
  auto got = runKernel("func.func @f(%x: tensor<777xf32>, %y: tensor<777xf32>) -> tensor<777xf32> {\n"
                       "%a = mpt.pow %x, %y : tensor<777xf32>\nreturn %a : tensor<777xf32>\n}",
                       {x, y});
  std::vector<double> want;
  for (size_t i = 0; i < x.values.size(); ++i)
    want.push_back(static_cast<float>(std::pow(x.values[i], y.values[i])));
  expect("pow", got, {want}, 2 * 0x1p-23);
}

double rounded(double value, int bits) {
  if (value == 0 || !std::isfinite(value))
    return value;
  int exponent;
  std::frexp(value, &exponent);
  double unit = std::ldexp(1.0, exponent - bits);
  return std::nearbyint(value / unit) * unit;
}

void narrow() {
  struct {
    const char *type;
    int bits;
  } types[] = {{"f16", 11}, {"bf16", 8}};
  for (auto [type, bits] : types) {
    TestTensor x = uniform({33, 40}, -3, 3), y = uniform({40}, -3, 3);
    for (TestTensor *t : {&x, &y})
      for (double &v : t->values)
        v = rounded(v, bits);
    std::string full = std::string("tensor<33x40x") + type + ">", row = std::string("tensor<40x") + type + ">";
    auto got = runKernel("func.func @f(%x: " + full + ", %y: " + row + ") -> " + full +
                             " {\n%b = \"mpt.broadcast\"(%y) {dims = array<i64: 1>} : (" + row + ") -> " + full +
                             "\n%a = mpt.mul %x, %b : " + full + "\n%c = mpt.add %a, %x : " + full +
                             "\nreturn %c : " + full + "\n}",
                         {x, y});
    std::vector<double> want;
    for (int64_t i = 0; i < 33; ++i)
      for (int64_t j = 0; j < 40; ++j)
        want.push_back(rounded(rounded(x({i, j}) * y({j}), bits) + x({i, j}), bits));
    expect(type, got, {want}, 0);
  }
}

void rows() {
  const char *text = R"(func.func @f(%x: tensor<9x100xf32>) -> (tensor<9x100xf32>, tensor<9xf32>) {
    %m = mpt.reduce max %x {axes = array<i64: 1>} : (tensor<9x100xf32>) -> tensor<9xf32>
    %mb = "mpt.broadcast"(%m) {dims = array<i64: 0>} : (tensor<9xf32>) -> tensor<9x100xf32>
    %d = mpt.sub %x, %mb : tensor<9x100xf32>
    %e = mpt.exp %d : tensor<9x100xf32>
    %s = mpt.reduce sum %e {axes = array<i64: 1>} : (tensor<9x100xf32>) -> tensor<9xf32>
    %sb = "mpt.broadcast"(%s) {dims = array<i64: 0>} : (tensor<9xf32>) -> tensor<9x100xf32>
    %y = mpt.div %e, %sb : tensor<9x100xf32>
    return %y, %s : tensor<9x100xf32>, tensor<9xf32>
  })";
  TestTensor x = uniform({9, 100}, -5, 5);
  std::vector<double> y, sums;
  for (int64_t i = 0; i < 9; ++i) {
    double top = -1e9, sum = 0;
    for (int64_t j = 0; j < 100; ++j)
      top = std::max(top, x({i, j}));
    for (int64_t j = 0; j < 100; ++j)
      sum += std::exp(x({i, j}) - top);
    for (int64_t j = 0; j < 100; ++j)
      y.push_back(std::exp(x({i, j}) - top) / sum);
    sums.push_back(sum);
  }
  auto got = runKernel(text, {x}), again = runKernel(text, {x}, {}, 5);
  expect("softmax", got, {y, sums}, 1e-6);
  // Bitwise identical however the work is divided.
  if (!got.empty() && !again.empty())
    expect("softmax in five pieces", again, {got[0].values, got[1].values}, 0);
  // Columns of a row-major tensor are the rows here: lanes lie across the kept dimension.
  TestTensor turned = x;
  turned.strides = {1, 9};
  expect("softmax of a transposed buffer", runKernel(text, {turned}, {{1, 9}}), {y, sums}, 1e-6);

  // A result of the row that none of its elements needs is computed before the elements may overwrite its operands.
  TestTensor z = uniform({9, 100}, -5, 5);
  std::vector<double> total, top(9, 0);
  for (size_t i = 0; i < z.values.size(); ++i) {
    total.push_back(static_cast<float>(x.values[i] + z.values[i]));
    top[i / 100] = std::max(top[i / 100], std::fabs(total.back()));
  }
  expect("sum and its largest of a row",
         runKernel(R"(func.func @f(%x: tensor<9x100xf32>, %z: tensor<9x100xf32>) -> (tensor<9x100xf32>, tensor<9xf32>) {
    %s = mpt.add %x, %z : tensor<9x100xf32>
    %a = mpt.abs %s : tensor<9x100xf32>
    %m = mpt.reduce max %a {axes = array<i64: 1>} : (tensor<9x100xf32>) -> tensor<9xf32>
    return %s, %m : tensor<9x100xf32>, tensor<9xf32>
  })",
                   {x, z}),
         {total, top}, 0);
}

/// Statistics that are gathered while their elements are stored; some of them over results of a first walk over the
/// row.
void statistics() {
  TestTensor x = uniform({9, 100}, -5, 5);
  x.values[150] = NAN;
  x.values[250] = -INFINITY;
  std::vector<double> centred, squares(9, 0), tops(9, 0);
  for (int64_t i = 0; i < 9; ++i) {
    double mean = 0;
    for (int64_t j = 0; j < 100; ++j)
      mean += x({i, j}) / 100;
    for (int64_t j = 0; j < 100; ++j) {
      double value = x({i, j}) - static_cast<float>(mean);
      centred.push_back(value);
      squares[i] += value * value;
      tops[i] = std::isnan(value) || std::isnan(tops[i]) ? NAN : std::max(tops[i], std::fabs(value));
    }
  }
  expect("a row's elements with their squares and largest magnitude",
         runKernel(R"(func.func @f(%x: tensor<9x100xf32>) -> (tensor<9x100xf32>, tensor<9xf32>, tensor<9xf32>) {
    %m = mpt.reduce mean %x {axes = array<i64: 1>} : (tensor<9x100xf32>) -> tensor<9xf32>
    %b = "mpt.broadcast"(%m) {dims = array<i64: 0>} : (tensor<9xf32>) -> tensor<9x100xf32>
    %c = mpt.sub %x, %b : tensor<9x100xf32>
    %q = mpt.mul %c, %c : tensor<9x100xf32>
    %s = mpt.reduce sum %q {axes = array<i64: 1>} : (tensor<9x100xf32>) -> tensor<9xf32>
    %a = mpt.abs %c : tensor<9x100xf32>
    %t = mpt.reduce max %a {axes = array<i64: 1>} : (tensor<9x100xf32>) -> tensor<9xf32>
    return %c, %s, %t : tensor<9x100xf32>, tensor<9xf32>, tensor<9xf32>
  })",
                   {x}),
         {centred, squares, tops}, 1e-5, 1e-5);

  // Elements that are read again for another place of the row are not overwritten before.
  TestTensor y = uniform({3, 20, 20}, -5, 5);
  std::vector<double> sums, largest(3, 0);
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 20; ++j)
      for (int64_t k = 0; k < 20; ++k) {
        sums.push_back(static_cast<float>(y({i, j, k}) + y({i, k, j})));
        largest[i] = std::max(largest[i], std::fabs(sums.back()));
      }
  expect("a sum with the transposed, and its largest",
         runKernel(R"(func.func @f(%x: tensor<3x20x20xf32>) -> (tensor<3x20x20xf32>, tensor<3xf32>) {
    %r = mpt.transpose %x {permutation = array<i64: 0, 2, 1>} : (tensor<3x20x20xf32>) -> tensor<3x20x20xf32>
    %s = mpt.add %x, %r : tensor<3x20x20xf32>
    %a = mpt.abs %s : tensor<3x20x20xf32>
    %m = mpt.reduce max %a {axes = array<i64: 1, 2>} : (tensor<3x20x20xf32>) -> tensor<3xf32>
    return %s, %m : tensor<3x20x20xf32>, tensor<3xf32>
  })",
                   {y}),
         {sums, largest}, 0);
}

void columns() {
  const char *text =
      R"(func.func @f(%x: tensor<300x70xf16>, %y: tensor<300x70xf16>) -> (tensor<70xf32>, tensor<70xf32>) {
    %a = mpt.cast %x : tensor<300x70xf16> to tensor<300x70xf32>
    %b = mpt.cast %y : tensor<300x70xf16> to tensor<300x70xf32>
    %p = mpt.mul %a, %b : tensor<300x70xf32>
    %s = mpt.reduce sum %p {axes = array<i64: 0>} : (tensor<300x70xf32>) -> tensor<70xf32>
    %m = mpt.reduce mean %a {axes = array<i64: 0>} : (tensor<300x70xf32>) -> tensor<70xf32>
    return %s, %m : tensor<70xf32>, tensor<70xf32>
  })";
  TestTensor x = uniform({300, 70}, -1, 1), y = uniform({300, 70}, 0, 1);
  for (TestTensor *t : {&x, &y})
    for (double &v : t->values)
      v = rounded(v, 11);
  std::vector<double> sums(70), means(70);
  for (int64_t i = 0; i < 300; ++i)
    for (int64_t j = 0; j < 70; ++j) {
      sums[j] += x({i, j}) * y({i, j});
      means[j] += x({i, j}) / 300;
    }
  expect("column sums", runKernel(text, {x, y}), {sums, means}, 1e-6, 1e-5);

  // Statistics of a channels-last image.
  const char *image = R"(func.func @f(%x: tensor<4x32x5x6xf32>) -> tensor<32xf32> {
    %m = mpt.reduce mean %x {axes = array<i64: 0, 2, 3>} : (tensor<4x32x5x6xf32>) -> tensor<32xf32>
    return %m : tensor<32xf32>
  })";
  TestTensor z = uniform({4, 32, 5, 6}, -1, 1);
  z.strides = {5 * 6 * 32, 1, 6 * 32, 32};
  std::vector<double> mean(32);
  for (int64_t i = 0; i < z.count(); ++i)
    mean[i / 30 % 32] += z.values[i] / 120;
  expect("channel means", runKernel(image, {z}), {mean}, 1e-6, 1e-6);
}

void whole() {
  const char *text = R"(func.func @f(%x: tensor<1003xf32>) -> (tensor<f32>, tensor<f32>) {
    %p = mpt.mul %x, %x : tensor<1003xf32>
    %s = mpt.reduce sum %p {axes = array<i64: 0>} : (tensor<1003xf32>) -> tensor<f32>
    %n = mpt.sqrt %s : tensor<f32>
    %m = mpt.reduce max %x {axes = array<i64: 0>} : (tensor<1003xf32>) -> tensor<f32>
    return %n, %m : tensor<f32>, tensor<f32>
  })";
  TestTensor x = uniform({1003}, -1, 1);
  double sum = 0;
  for (double v : x.values)
    sum += v * v;
  expect("norm", runKernel(text, {x}), {{std::sqrt(sum)}, {*std::max_element(x.values.begin(), x.values.end())}}, 1e-6);
}

/// Sums far from zero keep FP32's last digit however many terms they have, and terms that cancel leave nothing.
void longSums() {
  TestTensor x = uniform({5000, 24}, 99, 101), image = uniform({3, 5, 70, 71}, 99, 101), all = uniform({100003}, 9, 11);
  std::vector<double> columns(24), channels(5), whole(1), none(24, 0.0);
  for (int64_t i = 0; i < x.count(); ++i)
    columns[i % 24] += x.values[i];
  for (int64_t i = 0; i < image.count(); ++i)
    channels[i / (70 * 71) % 5] += image.values[i] / (3 * 70 * 71);
  for (double value : all.values)
    whole[0] += value;
  const char *down = R"(func.func @f(%x: tensor<5000x24xf32>) -> tensor<24xf32> {
    %s = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<5000x24xf32>) -> tensor<24xf32>
    return %s : tensor<24xf32>
  })";
  expect("long columns", runKernel(down, {x}), {columns}, 0x1p-24);
  for (int64_t i = 0; i < x.count(); ++i)
    x.values[i] = i / 24 % 2 ? -0.1f : 0.1f;
  expect("cancelling columns", runKernel(down, {x}), {none}, 0);
  expect("long rows of channels",
         runKernel(R"(func.func @f(%x: tensor<3x5x70x71xf32>) -> tensor<5xf32> {
    %m = mpt.reduce mean %x {axes = array<i64: 0, 2, 3>} : (tensor<3x5x70x71xf32>) -> tensor<5xf32>
    return %m : tensor<5xf32>
  })",
                   {image}),
         {channels}, 0x1p-23);
  expect("long row",
         runKernel(R"(func.func @f(%x: tensor<100003xf32>) -> tensor<f32> {
    %s = mpt.reduce sum %x {axes = array<i64: 0>} : (tensor<100003xf32>) -> tensor<f32>
    return %s : tensor<f32>
  })",
                   {all}),
         {whole}, 0x1p-23);
}

void movement() {
  TestTensor x = uniform({6, 5, 20}, -1, 1);
  std::vector<double> want;
  for (int64_t i = 0; i < 20; ++i)
    for (int64_t j = 0; j < 6; ++j)
      for (int64_t k = 0; k < 5; ++k)
        want.push_back(x({j, k, i}));
  expect("transpose",
         runKernel(R"(func.func @f(%x: tensor<6x5x20xf32>) -> tensor<20x6x5xf32> {
    %y = "mpt.transpose"(%x) {permutation = array<i64: 2, 0, 1>} : (tensor<6x5x20xf32>) -> tensor<20x6x5xf32>
    return %y : tensor<20x6x5xf32> })",
                   {x}),
         {want}, 0);

  want.clear();
  for (int64_t i = -1; i < 7; ++i)
    for (int64_t k = 0; k < 100; ++k)
      want.push_back(i >= 0 && i < 6 ? x.values[i * 100 + k] : 2.5);
  expect("pad of a reshape",
         runKernel(R"(func.func @f(%x: tensor<6x5x20xf32>) -> tensor<8x100xf32> {
    %r = "mpt.reshape"(%x) : (tensor<6x5x20xf32>) -> tensor<6x100xf32>
    %y = "mpt.pad"(%r) {low = array<i64: 1, 0>, high = array<i64: 1, 0>, interior = array<i64: 0, 0>, value = 2.5}
      : (tensor<6x100xf32>) -> tensor<8x100xf32>
    return %y : tensor<8x100xf32> })",
                   {x}),
         {want}, 0);

  TestTensor ids = fill({7}, [](int64_t i) { return i == 3 ? -1 : (i * 5) % 6; });
  want.clear();
  for (double id : ids.values)
    for (int64_t k = 0; k < 100; ++k)
      want.push_back(x.values[(id < 0 ? id + 6 : id) * 100 + k]);
  expect("gather",
         runKernel(R"(func.func @f(%x: tensor<6x5x20xf32>, %i: tensor<7xi64>) -> tensor<7x5x20xf32> {
    %y = "mpt.gather"(%x, %i) {axis = 0 : i64} : (tensor<6x5x20xf32>, tensor<7xi64>) -> tensor<7x5x20xf32>
    return %y : tensor<7x5x20xf32> })",
                   {x, ids}),
         {want}, 0);

  TestTensor updates = uniform({7, 100}, -1, 1);
  std::vector<double> sums(600);
  for (int64_t i = 0; i < 7; ++i)
    for (int64_t k = 0; k < 100; ++k) {
      int64_t row = ids.values[i] < 0 ? 5 : static_cast<int64_t>(ids.values[i]);
      sums[row * 100 + k] += updates({i, k});
    }
  expect("scatter_add",
         runKernel(R"(func.func @f(%i: tensor<7xi64>, %u: tensor<7x100xf32>) -> tensor<6x100xf32> {
    %y = "mpt.scatter_add"(%i, %u) {axis = 0 : i64} : (tensor<7xi64>, tensor<7x100xf32>) -> tensor<6x100xf32>
    return %y : tensor<6x100xf32> })",
                   {ids, updates}),
         {sums}, 1e-6, 1e-6);

  TestTensor a = uniform({3, 17}, -1, 1), b = uniform({3, 30}, -1, 1);
  want.clear();
  for (int64_t i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < 17; ++k)
      want.push_back(a({i, k}));
    for (int64_t k = 0; k < 30; ++k)
      want.push_back(b({i, k}));
  }
  expect("concat",
         runKernel(R"(func.func @f(%a: tensor<3x17xf32>, %b: tensor<3x30xf32>) -> tensor<3x47xf32> {
    %y = "mpt.concat"(%a, %b) {axis = 1 : i64} : (tensor<3x17xf32>, tensor<3x30xf32>) -> tensor<3x47xf32>
    return %y : tensor<3x47xf32> })",
                   {a, b}),
         {want}, 0);
}

/// max_pool over windows of 3 by 3, 2 apart, of planes of 7 by 7 with a margin of 1: values, and places in the plane.
std::vector<std::vector<double>> poolsOf(const TestTensor &x) {
  std::vector<double> y, where;
  for (int64_t window = 0; window < 32 * 4 * 4; ++window) {
    const int64_t plane = window / 16, top = 2 * (window / 4 % 4) - 1, left = 2 * (window % 4) - 1;
    const int64_t firstRow = std::max<int64_t>(0, top), firstColumn = std::max<int64_t>(0, left);
    double best = -INFINITY;
    int64_t at = firstRow * 7 + firstColumn;
    for (int64_t r = firstRow; r < std::min<int64_t>(7, top + 3); ++r)
      for (int64_t c = firstColumn; c < std::min<int64_t>(7, left + 3); ++c)
        if (double v = x.values[plane * 49 + r * 7 + c]; v > best || std::isnan(v)) {
          best = v;
          at = r * 7 + c;
        }
    y.push_back(best);
    where.push_back(static_cast<double>(at));
  }
  return {y, where};
}

/// Windows with ties, zeros of both signs, infinities and NaN: the first of the largest, or the last NaN.
void pools() {
  for (std::string type : {"f32", "f16", "bf16"}) {
    std::string x_ = "tensor<2x16x7x7x" + type + ">", y_ = "tensor<2x16x4x4x" + type + ">";
    std::string text = "func.func @f(%x: " + x_ + ") -> (" + y_ + R"(, tensor<2x16x4x4xi32>) {
    %y, %i = "mpt.max_pool"(%x) {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>,
      pads_low = array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : ()" +
                       x_ + ") -> (" + y_ + ", tensor<2x16x4x4xi32>)\n    return %y, %i : " + y_ +
                       ", tensor<2x16x4x4xi32> }";
    for (bool special : {false, true}) {
      TestTensor x = uniform({2, 16, 7, 7}, -1, 1);
      for (double &v : x.values)
        v = special ? std::round(4 * v) / 4 : rounded(v, 8);
      for (size_t i = 0; special && i < x.values.size(); i += 11)
        x.values[i] = std::vector<double>{NAN, -0.0, INFINITY, -INFINITY, 0.0}[i / 11 % 5];
      const std::string what = "max_pool of " + type;
      expect(what.c_str(), runKernel(text, {x}, {}), poolsOf(x), 0);
      x.strides = {49 * 16, 1, 7 * 16, 16}; // channels last
      const std::vector<int64_t> channelsLast{16 * 16, 1, 4 * 16, 16};
      expect(what.c_str(), runKernel(text, {x}, {channelsLast, channelsLast}), poolsOf(x), 0);
    }
  }
}

/// The largest and smallest of 16-bit numbers along rows and columns, also of their magnitudes in FP32.
void extremes() {
  for (std::string type : {"f16", "bf16"})
    for (auto [rows, columns] : {std::pair<int64_t, int64_t>{6, 40}, {300, 64}, {7, 5001}}) {
      TestTensor x = uniform({rows, columns}, -3, 3);
      for (double &v : x.values)
        v = rounded(v, 8);
      x.values[3] = -INFINITY;
      x.values[2 * columns + 4] = NAN;
      std::string t = "tensor<" + std::to_string(rows) + "x" + std::to_string(columns) + "x", w = t + "f32>";
      for (int axis : {0, 1}) {
        int64_t kept = axis ? rows : columns;
        std::string r = "tensor<" + std::to_string(kept) + "x",
                    by = " {axes = array<i64: " + std::to_string(axis) + ">}";
        std::vector<double> most(kept, -INFINITY), least(kept, INFINITY), largest(kept, 0);
        auto into = [](double &value, double v, bool better) {
          if (better || std::isnan(v))
            value = std::isnan(value) ? value : v;
        };
        for (int64_t i = 0; i < rows; ++i)
          for (int64_t j = 0; j < columns; ++j) {
            double v = x({i, j});
            int64_t k = axis ? i : j;
            into(most[k], v, v > most[k]);
            into(least[k], v, v < least[k]);
            into(largest[k], std::fabs(v), std::fabs(v) > largest[k]);
          }
        std::string n = type + ">";
        expect(("extremes of " + type).c_str(),
               runKernel("func.func @f(%x: " + t + n + ") -> (" + r + n + ", " + r + n + ", " + r +
                             "f32>) {\n%m = mpt.reduce max %x" + by + " : (" + t + n + ") -> " + r + n +
                             "\n%l = mpt.reduce min %x" + by + " : (" + t + n + ") -> " + r + n +
                             "\n%c = mpt.cast %x : " + t + n + " to " + w + "\n%a = mpt.abs %c : " + w +
                             "\n%g = mpt.reduce max %a" + by + " : (" + w + ") -> " + r +
                             "f32>\nreturn %m, %l, %g : " + r + n + ", " + r + n + ", " + r + "f32>\n}",
                         {x}),
               {most, least, largest}, 0);
      }
    }
}

/// A gradient goes to the places that pooling chose.
void poolGradients() {
  TestTensor x = uniform({2, 16, 7, 7}, -1, 1);
  x.strides = {49 * 16, 1, 7 * 16, 16};
  std::vector<double> where, dx(x.count());
  TestTensor dy = uniform({2, 16, 4, 4}, -1, 1);
  for (int64_t p = 0; p < 32; ++p)
    for (int64_t i = 0; i < 4; ++i)
      for (int64_t j = 0; j < 4; ++j) {
        double best = -INFINITY, at = 0;
        for (int64_t r = 2 * i - 1; r < 2 * i + 2; ++r)
          for (int64_t c = 2 * j - 1; c < 2 * j + 2; ++c)
            if (r >= 0 && r < 7 && c >= 0 && c < 7 && x.values[p * 49 + r * 7 + c] > best) {
              best = x.values[p * 49 + r * 7 + c];
              at = static_cast<double>(r * 7 + c);
            }
        where.push_back(at);
        dx[p * 49 + static_cast<int64_t>(at)] += dy.values[p * 16 + i * 4 + j];
      }
  std::vector<int64_t> last = {16 * 16, 1, 4 * 16, 16};
  TestTensor indices{{2, 16, 4, 4}, where, last};
  dy.strides = last;
  expect("max_pool_backward",
         runKernel(R"(func.func @f(%g: tensor<2x16x4x4xf32>, %i: tensor<2x16x4x4xi32>) -> tensor<2x16x7x7xf32> {
    %y = "mpt.max_pool_backward"(%g, %i) {kernel = array<i64: 3, 3>, strides = array<i64: 2, 2>, dilations = array<i64: 1, 1>,
      pads_low = array<i64: 1, 1>, pads_high = array<i64: 1, 1>} : (tensor<2x16x4x4xf32>, tensor<2x16x4x4xi32>) -> tensor<2x16x7x7xf32>
    return %y : tensor<2x16x7x7xf32> })",
                   {dy, indices}, {x.strides}),
         {dx}, 1e-6, 1e-6);
}

} // namespace

/// Sizes that ask for each of a GPU's schedules.
static void schedules() {
  for (const char *type : {"f32", "f16", "i1"}) {
    TestTensor x = fill({70, 100}, [&](int64_t i) { return type[0] == 'i' ? i * 7 % 3 == 0 : i % 251; });
    std::string t = std::string("tensor<70x100x") + type + ">";
    TestTensor turned = x;
    turned.strides = {1, 70};
    expect("layout change", runKernel("func.func @f(%x: " + t + ") -> " + t + " {\nreturn %x : " + t + "\n}", {turned}),
           {x.values}, 0);
  }
  // Filters, whose taps lie inside of their channels on one side: extents that vectors divide, and others.
  for (const char *type : {"f32", "bf16"})
    for (int64_t channels : {128, 256, 40, 130})
      for (int64_t taps : {3, 5})
        for (bool inside : {false, true}) {
          TestTensor x = fill({6, channels, taps, taps}, [](int64_t i) { return i * 7 % 251; });
          std::vector<int64_t> planes = {channels * taps * taps, 1, taps * channels, channels}, output;
          (inside ? output : x.strides) = planes;
          std::string t =
              "tensor<6x" + std::to_string(channels) + "x" + std::to_string(taps) + "x" + std::to_string(taps) + "x";
          expect("filters to another layout",
                 runKernel("func.func @f(%x: " + t + "f32>) -> " + t + type + "> {\n" +
                               (type[0] == 'f' ? "%y = mpt.relu %x : " + t + "f32>\n"
                                               : "%y = mpt.cast %x : " + t + "f32> to " + t + "bf16>\n") +
                               "return %y : " + t + type + ">\n}",
                           {x}, {output}),
                 {x.values}, 0);
        }
  TestTensor a = uniform({3, 40, 50}, -1, 1), b = uniform({3, 40, 50}, -1, 1);
  std::vector<double> sum;
  for (int64_t i = 0; i < a.count(); ++i)
    sum.push_back(static_cast<float>(a.values[i] + b.values[i]));
  a.strides = {2000, 1, 40};
  std::string t = "tensor<3x40x50xf32>";
  expect("sum of two layouts",
         runKernel("func.func @f(%x: " + t + ", %y: " + t + ") -> " + t + " {\n%a = mpt.add %x, %y : " + t +
                       "\nreturn %a : " + t + "\n}",
                   {a, b}),
         {sum}, 0);

  // Rows that a block shares, in registers and not.
  for (int64_t n : {1000, 4096, 50257}) {
    TestTensor x = uniform({3, n}, -4, 4);
    std::vector<double> y;
    for (int64_t i = 0; i < 3; ++i) {
      double top = -1e9, total = 0;
      for (int64_t j = 0; j < n; ++j)
        top = std::max(top, x({i, j}));
      for (int64_t j = 0; j < n; ++j)
        total += std::exp(x({i, j}) - top);
      for (int64_t j = 0; j < n; ++j)
        y.push_back(std::exp(x({i, j}) - top) / total);
    }
    std::string t = "tensor<3x" + std::to_string(n) + "xf32>", dims = " {dims = array<i64: 0>} : (tensor<3xf32>) -> ";
    expect("long softmax",
           runKernel("func.func @f(%x: " + t + ") -> " + t + " {\n%m = mpt.reduce max %x {axes = array<i64: 1>} : (" +
                         t + ") -> tensor<3xf32>\n%b = mpt.broadcast %m" + dims + t + "\n%d = mpt.sub %x, %b : " + t +
                         "\n%e = mpt.exp %d : " + t + "\n%s = mpt.reduce sum %e {axes = array<i64: 1>} : (" + t +
                         ") -> tensor<3xf32>\n%c = mpt.broadcast %s" + dims + t + "\n%q = mpt.div %e, %c : " + t +
                         "\nreturn %q : " + t + "\n}",
                     {x}),
           {y}, 2e-6);
  }
}

/// Updates of tensors of many sizes, the smallest below a vector and the largest of several blocks, in one launch.
static void bundles() {
  std::string text = "func.func @f(%r: tensor<f32>", body, types, results;
  std::vector<TestTensor> inputs{TestTensor{{}, {0.5}}};
  std::vector<std::vector<double>> want;
  int number = 0;
  for (const std::vector<int64_t> &shape :
       std::vector<std::vector<int64_t>>{{5}, {1000}, {33, 130}, {9001}, {3, 7, 11}}) {
    std::string extents, n = std::to_string(number++);
    for (int64_t extent : shape)
      extents += std::to_string(extent) + "x";
    std::string wide = "tensor<" + extents + "f32>", half = "tensor<" + extents + "f16>";
    TestTensor w = uniform(shape, -1, 1), g = uniform(shape, -1, 1);
    for (double &v : g.values)
      v = rounded(v, 11);
    text += ", %w" + n + ": " + wide + ", %g" + n + ": " + half;
    body += "%b" + n + " = mpt.broadcast %r {dims = array<i64>} : (tensor<f32>) -> " + wide + "\n%c" + n +
            " = mpt.cast %g" + n + " : " + half + " to " + wide + "\n%s" + n + " = mpt.mul %c" + n + ", %b" + n +
            " : " + wide + "\n%n" + n + " = mpt.sub %w" + n + ", %s" + n + " : " + wide + "\n%h" + n +
            " = mpt.cast %n" + n + " : " + wide + " to " + half + "\n";
    types += (types.empty() ? "" : ", ") + wide + ", " + half;
    results += (results.empty() ? "%n" : ", %n") + n + ", %h" + n;
    std::vector<double> next, narrow;
    for (size_t i = 0; i < w.values.size(); ++i) {
      next.push_back(static_cast<float>(w.values[i] - 0.5 * g.values[i]));
      narrow.push_back(rounded(next.back(), 11));
    }
    want.push_back(next);
    want.push_back(narrow);
    inputs.push_back(w);
    inputs.push_back(g);
  }
  expect("bundle",
         runKernel(text + ") -> (" + types + ") {\n" + body + "return " + results + " : " + types + "\n}", inputs),
         want, 0x1p-24, 1e-7);
}

/// Norms and largest magnitudes of tensors of many sizes.
static void bundledSums() {
  std::string text = "func.func @f(", body, types, results;
  std::vector<TestTensor> inputs;
  std::vector<std::vector<double>> want;
  int number = 0;
  for (std::vector<int64_t> shape : std::vector<std::vector<int64_t>>{{5}, {1000}, {33, 130}, {70001}, {3, 7, 11}}) {
    std::string extents, axes, n = std::to_string(number++);
    for (size_t i = 0; i < shape.size(); ++i) {
      extents += std::to_string(shape[i]) + "x";
      axes += (i ? ", " : "") + std::to_string(i);
    }
    std::string half = "tensor<" + extents + "f16>", wide = "tensor<" + extents + "f32>";
    TestTensor g = uniform(shape, -1, 1);
    double top = 0, squares = 0;
    for (double &v : g.values) {
      v = rounded(v, 11);
      top = std::max(top, std::fabs(v));
      squares += v * v;
    }
    text += (inputs.empty() ? "%g" : ", %g") + n + ": " + half;
    body += "%c" + n + " = mpt.cast %g" + n + " : " + half + " to " + wide + "\n%a" + n + " = mpt.abs %c" + n + " : " +
            wide + "\n%m" + n + " = mpt.reduce max %a" + n + " {axes = array<i64: " + axes + ">} : (" + wide +
            ") -> tensor<f32>\n%q" + n + " = mpt.mul %c" + n + ", %c" + n + " : " + wide + "\n%s" + n +
            " = mpt.reduce sum %q" + n + " {axes = array<i64: " + axes + ">} : (" + wide + ") -> tensor<f32>\n";
    types += inputs.empty() ? "tensor<f32>, tensor<f32>" : ", tensor<f32>, tensor<f32>";
    results += (inputs.empty() ? "%m" : ", %m") + n + ", %s" + n;
    want.push_back({top});
    want.push_back({squares});
    inputs.push_back(g);
  }
  expect("bundled sums",
         runKernel(text + ") -> (" + types + ") {\n" + body + "return " + results + " : " + types + "\n}", inputs),
         want, 1e-6);
}

/// A pass down columns that writes the terms it adds up.
static void columnsWithElements() {
  const char *text =
      R"(func.func @f(%x: tensor<300x70xf16>, %y: tensor<300x70xf16>) -> (tensor<300x70xf16>, tensor<70xf32>) {
    %d = mpt.relu_backward %x, %y : tensor<300x70xf16>
    %a = mpt.cast %d : tensor<300x70xf16> to tensor<300x70xf32>
    %s = mpt.reduce sum %a {axes = array<i64: 0>} : (tensor<300x70xf32>) -> tensor<70xf32>
    return %d, %s : tensor<300x70xf16>, tensor<70xf32>
  })";
  TestTensor x = uniform({300, 70}, -1, 1), y = uniform({300, 70}, -1, 1);
  for (TestTensor *t : {&x, &y})
    for (double &v : t->values)
      v = rounded(v, 11);
  std::vector<double> masked, sums(70);
  for (int64_t i = 0; i < 300; ++i)
    for (int64_t j = 0; j < 70; ++j) {
      masked.push_back(y({i, j}) > 0 ? x({i, j}) : 0);
      sums[j] += masked.back();
    }
  expect("column sums and elements", runKernel(text, {x, y}), {masked, sums}, 1e-6, 1e-5);
}

/// Updates of several slices (of 256) that meet at few places and at many, in order where that matters.
static void scatters() {
  for (int64_t rows : {3, 500}) {
    TestTensor ids = fill({700}, [&](int64_t i) { return i % 11 == 0 ? 1 : (i * 37) % rows; });
    TestTensor updates = uniform({700, 24}, -1, 1), data = uniform({rows, 24}, -1, 1);
    std::vector<double> sums(rows * 24), last(data.values), most(data.values);
    for (int64_t i = 0; i < 700; ++i)
      for (int64_t k = 0; k < 24; ++k) {
        int64_t to = static_cast<int64_t>(ids.values[i]) * 24 + k;
        sums[to] += updates({i, k});
        last[to] = updates({i, k});
        most[to] = std::max(most[to], updates({i, k}));
      }
    std::string n = std::to_string(rows), types = "tensor<" + n + "x24xf32>, tensor<700x1xi64>, tensor<700x24xf32>";
    auto nd = [&](const std::string &kind) {
      return "func.func @f(%d: tensor<" + n + "x24xf32>, %i: tensor<700x1xi64>, %u: tensor<700x24xf32>) -> tensor<" +
             n + "x24xf32> {\n%y = mpt.scatter_nd %d, %i, %u {kind = #mpt<scatter_kind " + kind + ">} : (" + types +
             ") -> tensor<" + n + "x24xf32>\nreturn %y : tensor<" + n + "x24xf32> }";
    };
    expect("scatter_add in slices",
           runKernel("func.func @f(%i: tensor<700xi64>, %u: tensor<700x24xf32>) -> tensor<" + n +
                         "x24xf32> {\n%y = mpt.scatter_add %i, %u {axis = 0} : (tensor<700xi64>, "
                         "tensor<700x24xf32>) -> tensor<" +
                         n + "x24xf32>\nreturn %y : tensor<" + n + "x24xf32> }",
                     {ids, updates}),
           {sums}, 1e-5, 1e-5);
    ids.shape = {700, 1};
    expect("scatter_nd assign", runKernel(nd("assign"), {data, ids, updates}), {last}, 0);
    expect("scatter_nd max", runKernel(nd("max"), {data, ids, updates}), {most}, 0);
  }

  // Places of single elements: 20 x 30 updates whose indices differ everywhere.
  TestTensor ids = fill({20, 30}, [](int64_t i) { return (i * 7) % 4; }), updates = uniform({20, 30}, -1, 1);
  TestTensor data = uniform({4, 30}, -1, 1);
  std::vector<double> want(data.values);
  for (int64_t i = 0; i < 600; ++i)
    want[static_cast<int64_t>(ids.values[i]) * 30 + i % 30] += updates.values[i];
  expect("scatter_elements",
         runKernel(
             R"(func.func @f(%d: tensor<4x30xf32>, %i: tensor<20x30xi64>, %u: tensor<20x30xf32>) -> tensor<4x30xf32> {
    %y = mpt.scatter_elements %d, %i, %u {axis = 0, kind = #mpt<scatter_kind add>} : (tensor<4x30xf32>, tensor<20x30xi64>, tensor<20x30xf32>) -> tensor<4x30xf32>
    return %y : tensor<4x30xf32> })",
             {data, ids, updates}),
         {want}, 1e-6, 1e-6);

  // 3000 ones: sums in FP16 would stay at 2048.
  TestTensor one = fill({3000}, [](int64_t) { return 0; }), ones = fill({3000, 2}, [](int64_t) { return 1; });
  if (testDevice)
    expect("scatter_add of halves",
           runKernel(R"(func.func @f(%i: tensor<3000xi64>, %u: tensor<3000x2xf16>) -> tensor<2x2xf16> {
    %y = mpt.scatter_add %i, %u {axis = 0} : (tensor<3000xi64>, tensor<3000x2xf16>) -> tensor<2x2xf16>
    return %y : tensor<2x2xf16> })",
                     {one, ones}),
           {{3000, 3000, 0, 0}}, 0);
}

/// A new schedule is one file and one line of the list: it makes the kernels that it matches, the others make the rest.
static void plantedSchedule() {
  testPlanted = true;
  for (int64_t extent : {60, 100}) {
    metSchedules.erase("serial");
    TestTensor x = uniform({extent}, -1, 1);
    std::vector<double> doubled;
    for (double value : x.values)
      doubled.push_back(static_cast<float>(value + value));
    std::string type = "tensor<" + std::to_string(extent) + "xf32>";
    expect("planted schedule",
           runKernel("func.func @f(%x: " + type + ") -> " + type + " {\n%y = mpt.add %x, %x : " + type +
                         "\nreturn %y : " + type + "\n}",
                     {x}),
           {doubled}, 0);
    if (bool(metSchedules.count("serial")) != (extent <= 64)) {
      std::printf("planted schedule: expected it for 64 points at most, got %s for %d\n",
                  extent <= 64 ? "another" : "it", static_cast<int>(extent));
      ++failures;
    }
  }
  testPlanted = false;
}

static void everything() {
  elementwise();
  filters();
  functions();
  narrow();
  rows();
  statistics();
  columns();
  whole();
  longSums();
  movement();
  scatters();
  pools();
  poolGradients();
  extremes();
  if (testDevice) {
    schedules();
    bundles();
    bundledSums();
    columnsWithElements();
    plantedSchedule();
  }
}

int main(int argc, char **argv) {
  // GPU schedules: their results on this processor, and the output of ptxas for their code.
  if (argc > 1 && std::string(argv[1]) == "--device") {
    testDevice = true;
    everything();
    std::printf("%d programs assembled%s; schedules:", assembledKernels, assembledKernels ? "" : " (no ptxas found)");
    for (const std::string &schedule : metSchedules)
      std::printf(" %s", schedule.c_str());
    std::printf("\n");
    for (const char *schedule : {"pointwise", "rows", "columns", "columns-sum", "transpose", "scatter", "scatter-joins",
                                 "bundle", "bundle-sum"})
      if (!metSchedules.count(schedule)) {
        std::printf("no kernel has schedule %s\n", schedule);
        ++failures;
      }
  }
  for (unsigned bits : {128, 256, 512}) {
    if (testDevice)
      break;
    int before = failures;
    testTarget.vectorBits = bits;
    testTarget.fma = bits > 128;
    everything();
    if (failures != before)
      std::printf("%d failures with vectors of %u bits\n", failures - before, bits);
  }
  if (failures)
    std::printf("%d failures\n", failures);
  return failures != 0;
}
