// SPDX-License-Identifier: Apache-2.0
// How any operator becomes a task: arguments are captured as addresses and layouts, outputs are allocated, a task is
// queued, and later the stream's worker calls the CPU kernel on views of the same bytes.
//
// What outputs look like is learned, not computed: the first call with a signature (dtypes, layouts, settings) runs
// while the host waits, as operators are compiled on first use on hardware; later calls do not wait.
#include <ATen/native/Resize.h>

#include "operators/operator_task.h"
#include "runtime/generator.h"

namespace simnpu {
namespace {

using c10::IValue;

// One call of an operator on the host.
class OperatorCall {
 public:
  OperatorCall(Operator& op, Stack& stack)
      : op_(op),
        stack_(stack),
        base_(stack.size() - op.arguments),
        called_ns_(timing() ? now_ns() : 0),
        task_(new OperatorTask(op)) {}

  void make() {
    static thread_local std::string key_text;
    capture(key_text);
    const c10::DeviceGuard on(c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device_)));
    Stream& stream = current_stream(device_);
    auto signature = op_.signatures.of(key_text);
    const bool needs_layouts = op_.makes_tensors || !op_.out_arguments.empty();
    Stack returns;
    if (op_.always_waits || (op_.waits_for_masks && mask_) ||
        (needs_layouts && !signature->learned.load(std::memory_order_acquire)))
      returns = wait_for_results(stream, *signature);
    else
      returns = queue(stream, *signature);
    stack_.erase(stack_.end() - static_cast<std::ptrdiff_t>(op_.arguments), stack_.end());
    for (IValue& value : returns)
      stack_.push_back(std::move(value));
  }

 private:
  void capture(std::string& key_text) {
    Key key(key_text);
    int wanted = -1;
    for (size_t i = 0; i < op_.arguments; i++) {
      IValue& value = stack_[base_ + i];
      if (value.isTensor()) {
        capture_tensor(value.toTensor(), key);
        task_->places.push_back({ArgumentPlace::tensor, 1});
      } else if (value.isTensorList()) {
        const auto list = value.toTensorList();
        key.mark('{');
        for (size_t j = 0; j < list.size(); j++)
          capture_tensor(list.get(j), key);
        key.mark('}');
        task_->places.push_back({ArgumentPlace::tensors, static_cast<uint32_t>(list.size())});
      } else if (value.isOptionalTensorList()) {
        const auto list = value.toOptionalTensorList();
        key.mark('<');
        for (size_t j = 0; j < list.size(); j++) {
          const std::optional<at::Tensor> tensor = list.get(j);
          capture_tensor(tensor ? *tensor : at::Tensor(), key);
        }
        key.mark('>');
        task_->places.push_back({ArgumentPlace::optional_tensors, static_cast<uint32_t>(list.size())});
      } else {
        task_->places.push_back({ArgumentPlace::value, 1});
        if (op_.is_number[i] && op_.has_tensor_arguments && !tells_numbers())
          key.kind(value);
        else
          key.value(value);
        if (value.isDevice()) {
          wanted = value.toDevice().index();
          task_->values.emplace_back(c10::Device(c10::kCPU));
        } else {
          task_->values.push_back(value);
        }
      }
    }
    if (device_ < 0)
      device_ = wanted >= 0 ? wanted : current_device();
    give_generators();
  }

  void capture_tensor(const at::Tensor& tensor, Key& key) {
    Operand& operand = task_->operands.emplace_back();
    operand.ref = ref_of(tensor);
    if (!tensor.defined())
      return key.layout(operand.ref, '-');
    mask_ |= operand.ref.dtype == at::ScalarType::Bool || operand.ref.dtype == at::ScalarType::Byte;
    if (tensor.device().type() == c10::kPrivateUse1) {
      if (device_ < 0)
        device_ = tensor.device().index();
      check_device(tensor.device().index() == device_, tensor.device());
      return key.layout(operand.ref, 't');
    }
    check_device(tensor.dim() == 0 || op_.takes_host_tensors, tensor.device());
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      operand.host = tensor;
      return key.layout(operand.ref, 'w');
    }
    operand.host = tensor.detach().clone();  // the host may change it before the task runs
    key.layout(operand.ref, 'h');
  }

  void check_device(bool right, c10::Device other) const {
    TORCH_CHECK(right,
                "Expected all tensors to be on the same device, but found at least two devices, npu:", device_ < 0 ? 0 : device_,
                " and ", other, "! (in ", op_.name, ")");
  }

  void give_generators() {
    size_t at = 0;
    for (size_t i = 0; i < op_.arguments; i++) {
      if (task_->places[i].kind != ArgumentPlace::value)
        continue;
      if (op_.is_generator[i]) {
        IValue& value = task_->values[at];
        value = cpu_generator_of(value.isNone() ? default_generator(device_) : value.toGenerator());
      }
      at++;
    }
  }

  void prepare(const Signature& signature) {
    task_->record.description = signature.description;
    if (settings().workspaces)
      task_->workspace = signature.model.workspace;
    if (settings().kernel_time > 0) {
      const Slowness& slow = settings().slow;
      const double longer = !slow.kernel.empty() && slow.kernel == op_.name ? slow.kernel_factor : 1;
      task_->record.modelled_ns = static_cast<int64_t>(static_cast<double>(signature.model.duration_ns) * settings().kernel_time *
                                                       longer);
    }
  }

  Stack queue(Stream& stream, Signature& signature) {
    if (C10_UNLIKELY(!signature.learned.load(std::memory_order_acquire))) {  // works in place: nothing but a name is needed
      std::lock_guard lock(op_.signatures.mutex);
      if (!signature.learned) {
        signature.description = describe(kernel_call(*task_), &signature.model);
        signature.learned = true;
      }
    }
    Stack returns;
    for (size_t r = 0; r < op_.returned.size(); r++) {
      const int alias = op_.alias_of[r];
      if (alias >= 0) {
        if (op_.writes_to(alias))
          resize_out(alias, signature.outputs[r]);
        returns.push_back(stack_[base_ + static_cast<size_t>(alias)]);
      } else if (op_.returned[r] == Returned::tensors) {
        c10::List<at::Tensor> list;
        for (const Layout& layout : signature.outputs[r])
          list.push_back(new_output(layout));
        returns.emplace_back(std::move(list));
      } else {
        returns.emplace_back(new_output(signature.outputs[r][0]));
      }
    }
    prepare(signature);
    stream.submit(std::move(task_), called_ns_);
    return returns;
  }

  at::Tensor new_output(const Layout& layout) {
    at::Tensor made = empty_npu(layout);
    task_->outputs.push_back(ref_of(made));
    return made;
  }

  void resize_out(int argument, const std::vector<Layout>& learned) {
    const at::Tensor& out = stack_[base_ + static_cast<size_t>(argument)].toTensor();
    if (learned.empty() || out.sizes() == c10::IntArrayRef(learned[0].sizes))
      return;
    at::native::resize_output(out, learned[0].sizes);
    size_t operand = 0;
    for (int i = 0; i < argument; i++)
      if (task_->places[i].kind != ArgumentPlace::value)
        operand += task_->places[i].count;
    task_->operands[operand].ref = ref_of(out);
  }

  Stack wait_for_results(Stream& stream, Signature& signature) {
    Stack results;
    std::exception_ptr fault;
    task_->results = &results;
    task_->fault_of_caller = &fault;
    task_->record.flags |= kTaskAwaited;
    KernelCall call = kernel_call(*task_);
    {
      std::lock_guard lock(op_.signatures.mutex);
      if (!signature.description)
        signature.description = describe(call, &signature.model);
    }
    prepare(signature);
    stream.wait(stream.submit(std::move(task_), called_ns_));
    if (fault)
      std::rethrow_exception(fault);

    std::vector<std::pair<at::Tensor, TensorRef>> copies;
    std::vector<std::vector<Layout>> outputs(results.size());
    auto to_npu = [&](const at::Tensor& from, std::vector<Layout>& layouts) {
      // A result that repeats its elements (stride 0) could not be written to.
      layouts.push_back(layout_of(!from.defined() || from.is_non_overlapping_and_dense() ? from : from.contiguous()));
      at::Tensor made = empty_npu(layouts.back());
      if (from.defined() && from.numel())
        copies.emplace_back(from, ref_of(made));
      return made;
    };
    Stack returns;
    for (size_t r = 0; r < results.size(); r++) {
      const int alias = op_.alias_of[r];
      if (op_.returned[r] == Returned::other) {
        returns.push_back(results[r]);
      } else if (alias >= 0 && op_.writes_to(alias)) {
        const at::Tensor from = results[r].toTensor(), out = stack_[base_ + static_cast<size_t>(alias)].toTensor();
        outputs[r].push_back(layout_of(from));
        at::native::resize_output(out, from.sizes());
        copies.emplace_back(from, ref_of(out));
        returns.emplace_back(out);
      } else if (alias >= 0) {
        returns.push_back(stack_[base_ + static_cast<size_t>(alias)]);
      } else if (results[r].isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& from : results[r].toTensorVector())
          list.push_back(to_npu(from, outputs[r]));
        returns.emplace_back(std::move(list));
      } else {
        returns.emplace_back(to_npu(results[r].isNone() ? at::Tensor() : results[r].toTensor(), outputs[r]));
      }
    }
    if (!copies.empty())
      stream.submit(make_task("keeping results", TaskKind::kernel,
                              [copies = std::move(copies)] {
                                for (const auto& [from, to] : copies)
                                  cpu_view(to).copy_(from);
                              }),
                    0);
    std::lock_guard lock(op_.signatures.mutex);
    if (!signature.learned) {
      for (const auto& tensors : outputs)
        call.outputs.insert(call.outputs.end(), tensors.begin(), tensors.end());
      describe(call, &signature.model, signature.description);
      signature.outputs = std::move(outputs);
      signature.learned.store(true, std::memory_order_release);  // of no use where the host always waits
    }
    return returns;
  }

  Operator& op_;
  Stack& stack_;
  const size_t base_;
  const int64_t called_ns_;
  std::unique_ptr<OperatorTask> task_;
  int device_ = -1;
  bool mask_ = false;
};

}  // namespace

void run_operator(const c10::OperatorHandle& handle, Stack* stack) {
  check_not_forked();
  OperatorCall(operator_of(handle), *stack).make();
}

}  // namespace simnpu
