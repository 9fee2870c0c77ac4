// RUN: split-file %s %t
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=fp8-hybrid,measure=%t/mixed.json | FileCheck %s
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign=policy=fp8-hybrid,measure=%t/shared.json | FileCheck %s --check-prefix=SHARED
// RUN: mpt-opt %S/Inputs/three.mlir --precision-assign='policy=fp8-hybrid,measure=%t/mixed.json keep-narrow=second' | FileCheck %s --check-prefix=NAMED
// RUN: not mpt-opt %S/Inputs/three.mlir --precision-assign='policy=fp8-hybrid,measure=%t/mixed.json rules="where first -> narrow"' 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: not mpt-opt %S/Inputs/three.mlir --precision-assign=policy=fp8-current,measure=%t/mixed.json 2>&1 | FileCheck %s --check-prefix=RECIPE
// RUN: not mpt-opt %S/Inputs/three.mlir --precision-assign=policy=amp-bf16,measure=%t/mixed.json 2>&1 | FileCheck %s --check-prefix=SIXTEEN

// MISSING: error: loc("first"): expected a product 'mpt.matmul (8x4xf8E4M3FN, 4x16xf8E4M3FN) {transpose_a = false, transpose_b = false} -> 8x16xbf16' in '{{.*}}mixed.json', found none: it was measured of another model or of other shapes; measure this one's products (--emit=products, then python -m mpt.measure)
// RECIPE: expected times of products with bf16, f8E4M3FN, f8E5M2, current scales in '{{.*}}mixed.json', got those with bf16, f8E4M3FN, f8E5M2, delayed scales: measure this policy's products
// SIXTEEN: expected a policy with 8-bit operands of GEMMs with measure, got amp-bf16

// The middle layer's products, one by one: forward, of the weight, of the data. The evaluation does as the step does.
// CHECK: products = [{ops = 1 : i64, ops_8 = 1 : i64, product = "mpt.matmul (8x16xf8E4M3FN, 16x16xf8E4M3FN)
// CHECK-SAME: timed_device = "a device"
// CHECK-LABEL: func.func @step
// CHECK: mpt.matmul {{.*}}quantized = true, {{.*}}rule = "class contraction -> narrow{{.*}}; 8 bits: 8 bits measured 2.00 times faster (5.0 us with conversions, 10.0 us in bf16), 8x16 by 16x16; fewest
// CHECK: mpt.matmul {{.*}}rule = "class contraction -> narrow{{.*}}; 16 bits: 8 bits measured 1.50 times slower (15.0 us with conversions, 10.0 us in bf16), 8x16 by 8x16; fewest
// CHECK-NOT: quantized
// CHECK: mpt.matmul {{.*}}rule = "class contraction -> narrow{{.*}}; 16 bits: 8 bits measured 1.00 times slower (10.0 us with conversions, 10.0 us in bf16), 8x16 by 16x16; fewest
// CHECK-LABEL: func.func @evaluate
// CHECK: quantized = true, {{.*}}8 bits: 8 bits measured 2.00 times faster

// Slower alone, but its operands are converted for the two others: 12 us with conversions of 8, of which none is its own.
// SHARED-LABEL: func.func @step
// SHARED: quantized = true, {{.*}}8 bits measured 2.00 times faster (5.0 us
// SHARED: quantized = true, {{.*}}8 bits measured 2.00 times faster (5.0 us
// SHARED: quantized = true, {{.*}}8 bits: 8 bits measured 1.20 times slower (12.0 us with conversions, 10.0 us in bf16), 8x16 by 16x16; other products need its conversions, too;

// A rule on names beats the table.
// NAMED-LABEL: func.func @step
// NAMED-COUNT-3: quantized = true, results = {{.*}}rule = "keep-narrow
// NAMED-LABEL: func.func @evaluate

//--- mixed.json
{"format": "mpt-products", "version": 1, "recipe": "bf16, f8E4M3FN, f8E5M2, delayed scales", "target": "cpu", "device": "a device", "libraries": "",
 "products": [
  {"product": "mpt.matmul (8x16xf8E4M3FN, 16x16xf8E4M3FN) {transpose_a = false, transpose_b = false} -> 8x16xbf16", "us_16": 10, "us_8": 5},
  {"product": "mpt.matmul (8x16xf8E4M3FN, 8x16xf8E5M2) {transpose_a = true, transpose_b = false} -> 16x16xf32", "us_16": 10, "us_8": 15},
  {"product": "mpt.matmul (8x16xf8E5M2, 16x16xf8E4M3FN) {transpose_a = false, transpose_b = true} -> 8x16xbf16", "us_16": 10, "us_8": 10}],
 "conversions": [
  {"conversion": "8x16xbf16 -> f8E4M3FN", "us": 0}, {"conversion": "16x16xbf16 -> f8E4M3FN", "us": 0}, {"conversion": "8x16xbf16 -> f8E5M2", "us": 0}]}
//--- shared.json
{"format": "mpt-products", "version": 1, "recipe": "bf16, f8E4M3FN, f8E5M2, delayed scales", "target": "cpu", "device": "a device", "libraries": "",
 "products": [
  {"product": "mpt.matmul (8x16xf8E4M3FN, 16x16xf8E4M3FN) {transpose_a = false, transpose_b = false} -> 8x16xbf16", "us_16": 10, "us_8": 5},
  {"product": "mpt.matmul (8x16xf8E4M3FN, 8x16xf8E5M2) {transpose_a = true, transpose_b = false} -> 16x16xf32", "us_16": 10, "us_8": 5},
  {"product": "mpt.matmul (8x16xf8E5M2, 16x16xf8E4M3FN) {transpose_a = false, transpose_b = true} -> 8x16xbf16", "us_16": 10, "us_8": 12}],
 "conversions": [
  {"conversion": "8x16xbf16 -> f8E4M3FN", "us": 1}, {"conversion": "16x16xbf16 -> f8E4M3FN", "us": 4}, {"conversion": "8x16xbf16 -> f8E5M2", "us": 4}]}
