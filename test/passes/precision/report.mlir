// RUN: mpt-opt %S/Inputs/mlp.mlir '--precision-assign=keep-f32=fc2' --precision-insert-casts --precision-master-weights --precision-report -o /dev/null | FileCheck %s --check-prefix=TEXT
// RUN: mpt-opt %S/Inputs/mlp.mlir --precision-assign --precision-insert-casts --precision-master-weights '--precision-report=format=json output=%t.json' -o /dev/null
// RUN: %python -c "import json,sys; r = json.load(open(sys.argv[1])); assert r['policy'] == 'amp-f16'; assert any(v['op'] == 'mpt.matmul' and v['node'] == 'fc1' and v['class'] == 'contraction' and 'f16' in v['type'] and v['rule'].startswith('class contraction') for v in r['values']); assert sum(c['bytes'] for c in r['casts'] if c['function'] == 'step') == [t for t in r['totals'] if t['function'] == 'step'][0]['cast_bytes'] > 0" %t.json
// RUN: not mpt-opt %s --precision-report=format=xml 2>&1 | FileCheck %s --check-prefix=FORMAT
// RUN: not mpt-opt %s '--precision-report=output=%t/none/r.txt' 2>&1 | FileCheck %s --check-prefix=WRITE
// RUN: mpt-opt %s --precision-assign --precision-insert-casts --precision-report -o /dev/null | FileCheck %s --check-prefix=RANGE

// TEXT: precision report, policy amp-f16
// TEXT: parameter  fc1.weight : tensor<5x4xf16>  because its users are narrow
// TEXT: values of step
// TEXT: fc1 mpt.matmul#0 : tensor<8x5xf32>  contraction  because class contraction -> narrow
// TEXT: fc2 mpt.matmul#0 : tensor<8x3xf32>  contraction  because keep-f32 "fc2" -> wide
// TEXT: casts
// TEXT: step {{.*}} : tensor<8x4xf32> to tensor<8x4xf16>, 192 bytes
// TEXT: totals
// TEXT: step: {{.*}} narrow values
// FORMAT: expected report format text, json or html, got xml
// WRITE: cannot write '{{.*}}r.txt': 
// RANGE: constants out of range
// RANGE-NEXT: mask: 1 beyond f16's range, now its largest finite value
func.func @evaluate(%a: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %m = mpt.constant dense<-3.4e38> : tensor<4x4xf32> loc("mask")
  %0 = mpt.matmul %a, %a : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  %1 = mpt.add %0, %m : tensor<4x4xf32>
  %p = mpt.softmax %1 {axis = 1 : i64} : (tensor<4x4xf32>) -> tensor<4x4xf32>
  %2 = mpt.matmul %p, %p : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %2 : tensor<4x4xf32>
}
