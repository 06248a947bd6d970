// SPDX-License-Identifier: Apache-2.0
// How any operator becomes a task: arguments are captured as addresses and layouts, outputs are allocated, a task is
// queued, and later the stream's worker calls the CPU kernel on views of the same bytes.
//
// What outputs look like is learned, not computed: the first call with a signature (dtypes, layouts, settings) runs
// while the host waits, as operators are compiled on first use on hardware; later calls do not wait.
#include "operators.h"


#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

#include "generator.h"
#include "kernels.h"
#include "runtime.h"
#include "tensor_ref.h"

namespace simnpu {
namespace {

using c10::IValue;
using c10::OperatorHandle;
using torch::jit::Stack;

constexpr size_t kSignaturesKept = 8192;  // of one operator: endless new shapes must not fill the memory

// What one combination of dtypes, layouts and settings needs to know to run without waiting.
struct Signature {
  std::atomic<bool> learned{false};
  uint32_t description = 0;
  int64_t modelled_ns = 0;
  std::vector<std::vector<Layout>> outputs;  // of each return value
};

enum class Returned : uint8_t { tensor, tensors, other };

struct Operator {
  explicit Operator(const OperatorHandle& handle);
  void find_out_variant();
  bool writes_to(int argument) const {
    return std::find(out_arguments.begin(), out_arguments.end(), argument) != out_arguments.end();
  }

  OperatorHandle handle;
  std::string name;
  size_t arguments;
  CpuKernel own = nullptr;
  std::optional<OperatorHandle> out_variant;  // writes into outputs that exist, without a copy
  bool always_waits = false;  // what comes out depends on values
  bool waits_for_masks = false;  // ... only when an index is a mask
  bool takes_host_tensors = false;
  bool makes_tensors = false;
  bool has_tensor_arguments = false;
  std::vector<bool> is_generator;
  std::vector<bool> is_written;
  std::vector<bool> is_number;  // values that change without changing the outputs' layout, such as a learning rate
  std::vector<int> alias_of;  // for each return: the argument it is, or -1
  std::vector<Returned> returned;
  std::vector<int> out_arguments;

  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<Signature>> signatures;
};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

Operator::Operator(const OperatorHandle& handle) : handle(handle), name(c10::toString(handle.operator_name())) {
  const auto& schema = handle.schema();
  arguments = schema.arguments().size();
  own = own_kernel(name);
  always_waits = handle.hasTag(at::Tag::dynamic_output_shape) || handle.hasTag(at::Tag::data_dependent_output) ||
      contains(name, "_ctc_loss");  // as long as the longest target, which no tag says
  takes_host_tensors = contains(name, "aten::index") || contains(name, "_index_put") || contains(name, "_unsafe_index");
  if (contains(name, "index.Tensor")) {
    always_waits = false;
    waits_for_masks = true;
  }
  for (size_t i = 0; i < arguments; i++) {
    const auto& argument = schema.arguments()[i];
    const std::string type = argument.type()->str();
    is_written.push_back(argument.alias_info() && argument.alias_info()->isWrite());
    is_generator.push_back(contains(type, "Generator"));
    is_number.push_back(contains(type, "Scalar") || contains(type, "number") || contains(type, "float"));
    if (argument.is_out())
      out_arguments.push_back(static_cast<int>(i));
    else if (contains(type, "Tensor"))
      has_tensor_arguments = true;
  }
  for (const auto& result : schema.returns()) {
    int alias = -1;
    for (size_t i = 0; result.alias_info() && i < arguments; i++) {
      const auto* info = schema.arguments()[i].alias_info();
      if (info && info->isWrite() && info->beforeSets() == result.alias_info()->beforeSets())
        alias = static_cast<int>(i);
    }
    const std::string type = result.type()->str();
    alias_of.push_back(alias);
    returned.push_back(type == "Tensor" || type == "Tensor?" ? Returned::tensor
                           : type == "Tensor[]"              ? Returned::tensors
                                                             : Returned::other);
    always_waits |= returned.back() == Returned::other;
    makes_tensors |= alias < 0;
  }
  if (makes_tensors && !always_waits && !own && out_arguments.empty())
    find_out_variant();
}

void Operator::find_out_variant() {
  static const auto* by_name = [] {
    auto* names = new std::unordered_map<std::string, std::vector<c10::OperatorName>>;
    for (const auto& op : c10::Dispatcher::singleton().getAllOpNames())
      if (contains(op.overload_name, "out"))
        (*names)[op.name].push_back(op);
    return names;
  }();
  if (std::any_of(returned.begin(), returned.end(), [](Returned r) { return r != Returned::tensor; }))
    return;
  const auto& schema = handle.schema();
  auto found = by_name->find(schema.name());
  if (found == by_name->end())
    return;
  for (const auto& candidate_name : found->second) {
    auto candidate = c10::Dispatcher::singleton().findSchema(candidate_name);
    if (!candidate || !candidate->hasKernelForDispatchKey(c10::DispatchKey::CPU))
      continue;
    const auto& theirs = candidate->schema().arguments();
    if (theirs.size() != arguments + schema.returns().size())
      continue;
    bool same = true;
    for (size_t i = 0; same && i < theirs.size(); i++)
      same = i < arguments ? !theirs[i].is_out() && theirs[i].name() == schema.arguments()[i].name() &&
                                 *theirs[i].type() == *schema.arguments()[i].type()
                           : theirs[i].is_out();
    if (same) {
      out_variant = *candidate;
      return;
    }
  }
}

Operator& operator_of(const OperatorHandle& handle) {
  static thread_local std::unordered_map<const void*, Operator*> seen;
  const void* key = &handle.schema();
  if (auto found = seen.find(key); C10_LIKELY(found != seen.end()))
    return *found->second;
  static std::mutex mutex;
  static auto* all = new std::unordered_map<const void*, std::unique_ptr<Operator>>;
  std::lock_guard lock(mutex);
  auto& op = (*all)[key];
  if (!op)
    op = std::make_unique<Operator>(handle);
  return *(seen[key] = op.get());
}

// --------------------------------------------------------------------------------------------------------- a task

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
  c10::SmallVector<IValue, 6> values;
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
        case ArgumentPlace::value:
          stack.push_back(std::move(values[at_value++]));
          break;
        case ArgumentPlace::tensor:
          stack.emplace_back(next());
          break;
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

// ------------------------------------------------------------------------------------------------------ signatures

class Key {
 public:
  explicit Key(std::string& text) : text_(text) {
    text_.clear();
  }
  void mark(char c) {
    text_.push_back(c);
  }
  void raw(const void* data, size_t bytes) {
    text_.append(static_cast<const char*>(data), bytes);
  }
  void layout(const Layout& layout, char place) {
    mark(place);
    if (!layout.defined)
      return;
    mark(static_cast<char>(layout.dtype));
    mark(static_cast<char>(layout.sizes.size()));
    raw(layout.sizes.data(), layout.sizes.size() * sizeof(int64_t));
    raw(layout.strides.data(), layout.strides.size() * sizeof(int64_t));
  }
  void kind(const IValue& value) {
    mark(value.isDouble() ? 'd' : value.isInt() ? 'i' : value.isBool() ? 'b' : value.isNone() ? 'n' : value.isComplexDouble() ? 'c' : 'o');
  }
  void value(const IValue& value) {
    kind(value);
    if (value.isInt()) {
      number(value.toInt());
    } else if (value.isDouble()) {
      number(value.toDouble());
    } else if (value.isBool()) {
      mark(value.toBool() ? '1' : '0');
    } else if (value.isString()) {
      text_ += value.toStringRef();
      mark('\0');
    } else if (value.isIntList()) {
      const auto list = value.toIntList();
      number(list.size());
      for (int64_t item : list)
        number(item);
    } else if (value.isDoubleList()) {
      const auto list = value.toDoubleList();
      number(list.size());
      for (double item : list)
        number(item);
    } else if (value.isList()) {
      const auto list = value.toListRef();
      number(list.size());
      for (const IValue& item : list)
        this->value(item);
    }
  }

 private:
  template <class Number>
  void number(Number number) {
    raw(&number, sizeof number);
  }
  std::string& text_;
};

std::shared_ptr<Signature> signature_for(Operator& op, const std::string& key) {
  std::lock_guard lock(op.mutex);
  if (op.signatures.size() > kSignaturesKept)
    op.signatures.clear();
  auto& signature = op.signatures[key];
  if (!signature)
    signature = std::make_shared<Signature>();
  return signature;
}

// What a kernel reads, and what it writes in place; tensors it makes are added when they are known.
KernelCall kernel_call(const OperatorTask& task) {
  KernelCall call;
  call.op = task.op.name;
  size_t at = 0;
  for (size_t i = 0; i < task.places.size(); i++) {
    if (task.places[i].kind == ArgumentPlace::value)
      continue;
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

// ------------------------------------------------------------------------------------------------------- the call

// One call of an operator on the host.
class OperatorCall {
 public:
  OperatorCall(Operator& op, Stack& stack)
      : op_(op), stack_(stack), base_(stack.size() - op.arguments), called_ns_(recording() ? now_ns() : 0), task_(new OperatorTask(op)) {}

  void make() {
    static thread_local std::string key_text;
    capture(key_text);
    const c10::DeviceGuard on(c10::Device(c10::kPrivateUse1, static_cast<c10::DeviceIndex>(device_)));
    Stream& stream = current_stream(device_);
    auto signature = signature_for(op_, key_text);
    const bool needs_layouts = op_.makes_tensors || !op_.out_arguments.empty();
    Stack returns;
    if (op_.always_waits || (op_.waits_for_masks && mask_) || (needs_layouts && !signature->learned.load(std::memory_order_acquire)))
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
        if (op_.is_number[i] && op_.has_tensor_arguments)
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
    TORCH_CHECK(right, "Expected all tensors to be on the same device, but found at least two devices, npu:", device_ < 0 ? 0 : device_,
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
    if (settings().kernel_time > 0)
      task_->record.modelled_ns = static_cast<int64_t>(static_cast<double>(signature.modelled_ns) * settings().kernel_time);
  }

  Stack queue(Stream& stream, Signature& signature) {
    if (C10_UNLIKELY(!signature.learned.load(std::memory_order_acquire))) {  // works in place: nothing but a name is needed
      std::lock_guard lock(op_.mutex);
      if (!signature.learned) {
        signature.description = describe(kernel_call(*task_), &signature.modelled_ns);
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
      std::lock_guard lock(op_.mutex);
      if (!signature.description)
        signature.description = describe(call, &signature.modelled_ns);
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
    std::lock_guard lock(op_.mutex);
    if (!signature.learned) {
      for (const auto& tensors : outputs)
        call.outputs.insert(call.outputs.end(), tensors.begin(), tensors.end());
      describe(call, &signature.modelled_ns, signature.description);
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

// Written by hand in tensors.cpp, or made of other operators on purpose.
const std::unordered_set<std::string>& not_registered() {
  static const auto* names = new std::unordered_set<std::string>{
      "aten::empty.memory_format", "aten::empty_strided", "aten::_copy_from", "aten::_copy_from_and_resize", "aten::_local_scalar_dense",
      "aten::as_strided", "aten::view", "aten::_reshape_alias", "aten::unfold", "aten::view_as_real", "aten::view_as_complex", "aten::resize_",
      "aten::set_", "aten::set_.source_Storage", "aten::set_.source_Storage_storage_offset", "aten::set_.source_Tensor",
      "aten::record_stream", "aten::_fused_sdp_choice", "aten::copy_", "aten::_has_same_storage_numel", "aten::is_set_to"};
  return *names;
}

bool becomes_npu_operator(const OperatorHandle& op) {
  const auto& name = op.operator_name();
  if (name.name.rfind("aten::", 0) != 0 || not_registered().count(c10::toString(name)))
    return false;
  for (const auto& result : op.schema().returns())
    if (result.alias_info() && !result.alias_info()->isWrite())
      return false;  // a view
  if (op.hasTag(at::Tag::inplace_view))
    return false;
  if (name.name.rfind("aten::_foreach_", 0) == 0)  // one kernel for the whole list, as on hardware
    return !op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd);
  static const std::unordered_set<std::string> one_kernel_on_hardware = {"aten::embedding"};
  return op.hasKernelForDispatchKey(c10::DispatchKey::CPU) || own_kernel(c10::toString(name)) ||
      one_kernel_on_hardware.count(c10::toString(name));
}

}  // namespace

void run_operator(const OperatorHandle& handle, Stack* stack) {
  check_not_forked();
  OperatorCall(operator_of(handle), *stack).make();
}

int64_t register_operators() {
  static auto* library =
      new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, __FILE__, static_cast<uint32_t>(__LINE__));
  static int64_t registered = [] {
    int64_t count = 0;
    auto& dispatcher = c10::Dispatcher::singleton();
    for (const auto& name : dispatcher.getAllOpNames()) {
      auto op = dispatcher.findSchema(name);
      if (!op || !becomes_npu_operator(*op))
        continue;
      std::string text = name.name.substr(sizeof("aten::") - 1);
      if (!name.overload_name.empty())
        text += "." + name.overload_name;
      library->impl(text.c_str(), torch::CppFunction::makeFromBoxedFunction<&run_operator>());
      count++;
    }
    return count;
  }();
  return registered;
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_operator>());
}

}  // namespace simnpu
