// RUN: mpt-opt %s --training-optimizer=optimizer=adamw | FileCheck %s --check-prefix=ADAMW
// RUN: mpt-opt %s --training-optimizer=optimizer=adam,betas=0.8:0.9,eps=1e-6 | FileCheck %s --check-prefix=ADAM
// RUN: mpt-opt %s --training-optimizer=optimizer=adagrad,lr-decay=0.1 | FileCheck %s --check-prefix=ADAGRAD
// RUN: mpt-opt %s --training-optimizer="optimizer=sgd clip-norm=2.0" | FileCheck %s --check-prefix=CLIP
// RUN: not mpt-opt %s --training-optimizer=optimizer=lyon 2>&1 | FileCheck %s --check-prefix=KIND
// RUN: not mpt-opt %s --training-optimizer=optimizer=sgd,beta=1 2>&1 | FileCheck %s --check-prefix=KEY
// RUN: not mpt-opt %s --training-optimizer=optimizer=adam,betas=0.9 2>&1 | FileCheck %s --check-prefix=BETAS
// RUN: not mpt-opt %s --training-optimizer=optimizer=sgd,lr=fast 2>&1 | FileCheck %s --check-prefix=VALUE
// RUN: not mpt-opt %s --training-optimizer=optimizer=sgd,nesterov=true 2>&1 | FileCheck %s --check-prefix=NESTEROV
// RUN: not mpt-opt %s --training-optimizer=clip-norm=-1 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: mpt-opt %s '--training-optimizer=optimizer=sgd,lr=0.1;adam,lr=0.2,params=.*' | FileCheck %s --check-prefix=GROUPS
// RUN: not mpt-opt %s --training-optimizer=optimizer=sgd,params=none 2>&1 | FileCheck %s --check-prefix=NOBODY
// RUN: not mpt-opt %s --training-optimizer=optimizer=sgd,"params=(" 2>&1 | FileCheck %s --check-prefix=PARAMS
// RUN: sed 's/mpt.name = "x"/mpt.name = "learning_rate"/' %s > %t.mlir
// RUN: not mpt-opt %t.mlir --training-optimizer 2>&1 | FileCheck %s --check-prefix=TAKEN

// ADAMW-DAG: slot @a.moment1 : tensor<3xf32> of "a"
// ADAMW-DAG: slot @a.moment2 : tensor<3xf32> of "a"
// ADAMW: mpt.adam %{{.*}} {decoupled = true, weight_decay = 1.0{{0*}}e-02
// ADAM: mpt.adam %{{.*}} {beta1 = 8.{{0*}}e-01 : f64, beta2 = 9.{{0*}}e-01 : f64, epsilon = {{.*}}E-7 : f64}
// ADAGRAD: slot @a.sum
// ADAGRAD: mpt.adagrad %{{.*}} {lr_decay = 1.0{{0*}}e-01
// Clipping waits for every gradient.
// CLIP: -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<f32> {mpt.name = "grad_norm", train.role = #train<role grad_norm>})
// CLIP: %[[A:.*]] = train.gradient @a
// CLIP: %[[B:.*]] = train.gradient @b
// CLIP: %[[NORM:.*]] = train.global_norm %[[A]], %[[B]]
// CLIP: %[[RATIO:.*]] = mpt.div
// CLIP: %[[C:.*]] = mpt.min %[[RATIO]]
// CLIP: %[[CA:.*]] = mpt.broadcast %[[C]]
// CLIP: %[[GA:.*]] = mpt.mul %[[A]], %[[CA]]
// CLIP: mpt.sgd %{{.*}}, %[[GA]]
// CLIP: return %{{.*}}, %[[NORM]]
// KIND: error: optimizer: expected an optimizer (sgd, adam, adamw, adagrad, rmsprop, lion, lamb, lars, adafactor), got 'lyon'
// KEY: error: optimizer: expected a key of sgd (lr, weight-decay, momentum, dampening, nesterov, schedule, warmup, steps, min, gamma, every, rise, div, final), got 'beta'
// BETAS: error: optimizer: expected two numbers in [0, 1), as 0.9:0.999 for betas of adam, got '0.9'
// VALUE: error: optimizer: expected a number that is not negative for lr of sgd, got 'fast'
// NESTEROV: error: optimizer: expected momentum and no dampening with nesterov
// TAKEN: error: expected no input named 'learning_rate', which the optimizer adds: rename it
// NEGATIVE: error: expected a clip-norm that is not negative
train.state parameter @a : tensor<3xf32> = dense<0.5> : tensor<3xf32>
train.state parameter @b : tensor<f32> = dense<0.5> : tensor<f32>
func.func @step(%l: tensor<f32> {mpt.name = "x"}) -> (tensor<f32> {mpt.name = "loss", train.role = #train<role loss>}) {
  %a = train.read @a : tensor<3xf32>
  %b = train.read @b : tensor<f32>
  %ga = train.gradient @a, %a : tensor<3xf32>
  %gb = train.gradient @b, %b : tensor<f32>
  return %l : tensor<f32>
}
// A group's rate keeps its ratio to the first one's.
// GROUPS: mpt.optimizer = {kind = "sgd", learning_rate = 1.000000e-01 : f64
// GROUPS: %[[RATE:.*]] = mpt.mul %{{.*}}, %{{.*}} : tensor<f32>
// GROUPS-NOT: mpt.sgd
// GROUPS: mpt.adam %{{[^,]*}}, %{{[^,]*}}, %[[RATE]]
// NOBODY: error: expected an optimizer for parameter '{{.*}}': its name matches no params; give one without params, or freeze it
// PARAMS: error: optimizer: expected a regular expression for params of sgd, got '('
