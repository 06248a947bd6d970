// SPDX-License-Identifier: Apache-2.0
// A queued operator: its arguments as addresses and layouts, and how the worker calls the CPU kernel with them.
#pragma once
#include <ATen/ops/empty.h>

#include <cstring>

#include "operators/kernels.h"
#include "operators/operator_table.h"
#include "runtime/runtime.h"

namespace simnpu {

using torch::jit::Stack;

struct Operand {
  TensorRef ref;
  at::Tensor host;  // instead of a reference: a number, or an index that lives on the host
};

struct ArgumentPlace {
  enum Kind : uint8_t { value, tensor, tensors, optional_tensors } kind;
  uint32_t count;
};

class OperatorTask final : public Task {
 public:
  explicit OperatorTask(Operator& op) : op(op) {}

  void run() override {
    Stack stack = arguments_on_cpu();
    if (results && !op.out_arguments.empty())
      for (int argument : op.out_arguments)
        stack[argument] = at::empty({0}, stack[argument].toTensor().options());
    if (!results && op.out_variant && !outputs.empty()) {
      for (const TensorRef& output : outputs)
        stack.emplace_back(cpu_view(output));
      op.out_variant->callBoxed(stack);
      return;
    }
    if (op.own)
      op.own(stack);
    else
      op.handle.callBoxed(stack);
    if (results)
      *results = std::move(stack);
    else
      store(stack);
  }

  std::string name() const override {
    return op.name;
  }

  Operator& op;
  c10::SmallVector<ArgumentPlace, 8> places;
  c10::SmallVector<c10::IValue, 6> values;
  c10::SmallVector<Operand, 4> operands;
  c10::SmallVector<TensorRef, 1> outputs;
  Stack* results = nullptr;  // set: the host waits and makes the outputs itself

 private:
  Stack arguments_on_cpu() {
    Stack stack;
    stack.reserve(places.size() + outputs.size());
    size_t at_value = 0, at_operand = 0;
    auto next = [&] {
      Operand& operand = operands[at_operand++];
      return operand.host.defined() ? operand.host : cpu_view(operand.ref);
    };
    for (const ArgumentPlace& place : places) {
      switch (place.kind) {
        case ArgumentPlace::value: stack.push_back(std::move(values[at_value++])); break;
        case ArgumentPlace::tensor: stack.emplace_back(next()); break;
        case ArgumentPlace::tensors: {
          c10::List<at::Tensor> list;
          list.reserve(place.count);
          for (uint32_t i = 0; i < place.count; i++)
            list.push_back(next());
          stack.emplace_back(std::move(list));
          break;
        }
        case ArgumentPlace::optional_tensors: {
          c10::List<std::optional<at::Tensor>> list;
          for (uint32_t i = 0; i < place.count; i++) {
            at::Tensor tensor = next();
            list.push_back(tensor.defined() ? std::optional(tensor) : std::nullopt);
          }
          stack.emplace_back(std::move(list));
          break;
        }
      }
    }
    return stack;
  }

  void store(const Stack& made) {
    size_t at = 0;
    auto put = [&](const at::Tensor& from) {
      const TensorRef& to = outputs[at++];
      if (!to.defined || !from.defined())
        return;
      TORCH_CHECK(from.sizes() == c10::IntArrayRef(to.sizes), "the shape of its result depends on values: got ", from.sizes(),
                  " instead of ", c10::IntArrayRef(to.sizes));
      if (from.numel() == 0)
        return;
      if (from.scalar_type() == to.dtype && from.strides() == c10::IntArrayRef(to.strides) && from.is_non_overlapping_and_dense())
        memcpy(to.data, from.const_data_ptr(), from.nbytes());
      else
        cpu_view(to).copy_(from);
    };
    for (size_t r = 0; r < made.size(); r++) {
      if (op.alias_of[r] >= 0)
        continue;
      if (made[r].isTensorList())
        for (const at::Tensor& tensor : made[r].toTensorVector())
          put(tensor);
      else
        put(made[r].isNone() ? at::Tensor() : made[r].toTensor());
    }
  }
};

// What a kernel reads, and what it writes in place; tensors it makes are added when they are known.
inline KernelCall kernel_call(const OperatorTask& task) {
  KernelCall call;
  call.op = task.op.name;
  size_t at = 0, at_value = 0;
  for (size_t i = 0; i < task.places.size(); i++) {
    if (task.places[i].kind == ArgumentPlace::value) {
      const c10::IValue& value = task.values[at_value++];
      // A number that does not tell calls apart would be that of the first call.
      if (task.op.is_number[i] && task.op.has_tensor_arguments && !tells_numbers())
        continue;
      const c10::Argument& argument = task.op.handle.schema().arguments()[i];
      const std::string text = attribute_json(value, argument.real_type()->str());
      if (!text.empty())
        call.attributes += (call.attributes.empty() ? "\"" : ",\"") + argument.name() + "\":" + text;
      continue;
    }
    const bool out = task.op.writes_to(static_cast<int>(i));
    for (uint32_t j = 0; j < task.places[i].count; j++) {
      const Operand& operand = task.operands[at++];
      call.scalar_operand |= operand.host.defined() && operand.host.dim() == 0;
      const Layout layout = operand.host.defined() ? layout_of(operand.host) : static_cast<const Layout&>(operand.ref);
      if (!out)
        call.inputs.push_back(layout);
      if (!out && task.op.is_written[i])
        call.outputs.push_back(layout);
    }
  }
  return call;
}

}  // namespace simnpu
