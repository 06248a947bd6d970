// SPDX-License-Identifier: Apache-2.0
#define AT_PER_OPERATOR_HEADERS
#include <ATen/TensorOperators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <unordered_map>

#include "operators/operators.h"
#include "runtime/generator.h"
#include "runtime/runtime.h"

namespace simnpu {
namespace {

using at::Tensor;
using torch::jit::Stack;

Tensor tensor_or_none(const c10::IValue& value) {
  return value.isNone() ? Tensor() : value.toTensor();
}

void call(const char* op, Stack& stack) {
  c10::Dispatcher::singleton().findSchemaOrThrow(op, "").callBoxed(stack);
}

void convolution(Stack& stack) {
  call("aten::convolution", stack);
}

// The CPU's operator wants the size of the bias besides.
void convolution_backward(Stack& stack) {
  const Tensor weight = stack[2].toTensor();
  const bool transposed = stack[6].toBool();
  const int64_t groups = stack[8].toInt();
  stack.insert(stack.begin() + 3, c10::IValue(std::vector<int64_t>{transposed ? weight.size(1) * groups : weight.size(0)}));
  call("aten::convolution_backward", stack);
}

// The CPU's kernel draws from the host's generator, which the host uses meanwhile.
void dropout(Stack& stack) {
  const Tensor input = stack[0].toTensor();
  const double kept = 1 - stack[1].toDouble();
  const bool draws = stack[2].isNone() || stack[2].toBool();
  if (!draws || !input.numel())
    return call("aten::native_dropout", stack);
  Tensor mask = at::empty_like(input, input.options().dtype(at::kBool));
  mask.bernoulli_(kept, cpu_generator_of(default_generator(current_device())));
  stack = {input.mul(mask).mul_(kept > 0 ? 1 / kept : 0), mask};
}

Tensor plus(Tensor sum, const Tensor& bias) {
  return bias.defined() ? sum.add_(bias) : sum;
}

// (input gates, hidden gates, cx, input bias, hidden bias) -> hy, cy, gates after their functions
void lstm_cell(Stack& stack) {
  const Tensor cx = stack[2].toTensor();
  Tensor gates = plus(plus(stack[0].toTensor() + stack[1].toTensor(), tensor_or_none(stack[3])), tensor_or_none(stack[4]));
  auto parts = gates.chunk(4, 1);
  parts[0].sigmoid_();
  parts[1].sigmoid_();
  parts[2].tanh_();
  parts[3].sigmoid_();
  Tensor cy = parts[1] * cx + parts[0] * parts[2];
  Tensor hy = parts[3] * cy.tanh();
  stack = {hy, cy, gates};
}

// (grad hy, grad cy, cx, cy, gates, has bias) -> grad of the gates, of cx, of the bias
void lstm_cell_backward(Stack& stack) {
  const Tensor cx = stack[2].toTensor(), cy = stack[3].toTensor(), gates = stack[4].toTensor();
  Tensor grad_hy = tensor_or_none(stack[0]), grad_cy = tensor_or_none(stack[1]);
  if (!grad_hy.defined())
    grad_hy = at::zeros_like(cx);
  const bool with_bias = stack[5].toBool();
  auto parts = gates.chunk(4, 1);
  const Tensor tanh_cy = cy.tanh();
  Tensor grad_cell = grad_hy * parts[3] * (1 - tanh_cy * tanh_cy);
  if (grad_cy.defined())
    grad_cell = grad_cell + grad_cy;
  const Tensor grad_gates = at::cat(
      {grad_cell * parts[2] * parts[0] * (1 - parts[0]), grad_cell * cx * parts[1] * (1 - parts[1]),
       grad_cell * parts[0] * (1 - parts[2] * parts[2]), grad_hy * tanh_cy * parts[3] * (1 - parts[3])},
      1);
  const Tensor grad_cx = grad_cell * parts[1];
  stack = {grad_gates, grad_cx, with_bias ? grad_gates.sum(0) : Tensor()};
}

// (input gates, hidden gates, hx, input bias, hidden bias) -> hy, what the gradient needs
void gru_cell(Stack& stack) {
  const Tensor hx = stack[2].toTensor();
  auto input = plus(stack[0].toTensor().clone(), tensor_or_none(stack[3])).chunk(3, 1);
  auto hidden = plus(stack[1].toTensor().clone(), tensor_or_none(stack[4])).chunk(3, 1);
  const Tensor reset = (hidden[0] + input[0]).sigmoid_();
  const Tensor update = (hidden[1] + input[1]).sigmoid_();
  const Tensor fresh = (input[2] + reset * hidden[2]).tanh_();
  const Tensor hy = (hx - fresh) * update + fresh;
  stack = {hy, at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

// (grad hy, workspace, has bias) -> grad of input gates, hidden gates, hx, input bias, hidden bias
void gru_cell_backward(Stack& stack) {
  const Tensor grad = stack[0].toTensor();
  const bool with_bias = stack[2].toBool();
  auto parts = stack[1].toTensor().chunk(5, 1);
  const Tensor &reset = parts[0], &update = parts[1], &fresh = parts[2], &hx = parts[3], &hidden = parts[4];
  const Tensor grad_fresh = grad * (1 - update) * (1 - fresh * fresh);
  const Tensor grad_update = grad * (hx - fresh) * update * (1 - update);
  const Tensor grad_reset = grad_fresh * hidden * reset * (1 - reset);
  const Tensor grad_input = at::cat({grad_reset, grad_update, grad_fresh}, 1);
  const Tensor grad_hidden = at::cat({grad_reset, grad_update, grad_fresh * reset}, 1);
  const Tensor grad_hx = grad * update;
  stack = {grad_input, grad_hidden, grad_hx, with_bias ? grad_input.sum(0) : Tensor(), with_bias ? grad_hidden.sum(0) : Tensor()};
}

}  // namespace

CpuKernel own_kernel(const std::string& op) {
  static const auto* kernels = new std::unordered_map<std::string, CpuKernel>{
      {"aten::convolution_overrideable", &convolution},
      {"aten::convolution_backward_overrideable", &convolution_backward},
      {"aten::native_dropout", &dropout},
      {"aten::_thnn_fused_lstm_cell", &lstm_cell},
      {"aten::_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward},
      {"aten::_thnn_fused_gru_cell", &gru_cell},
      {"aten::_thnn_fused_gru_cell_backward", &gru_cell_backward},
  };
  auto found = kernels->find(op);
  return found == kernels->end() ? nullptr : found->second;
}

}  // namespace simnpu
