// SPDX-License-Identifier: Apache-2.0
// torch.distributed's backend `hccl`: every operator becomes a task on a communication stream, where gloo carries the
// bytes between processes.
#include <ATen/ops/cat.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <numeric>

#include "communication/communicator.h"
#include "communication/reduction.h"
#include "runtime/stream_work.h"

namespace simnpu {
namespace {

using at::Tensor;
using c10::intrusive_ptr;
using Tensors = std::vector<Tensor>;
using Refs = std::vector<TensorRef>;
using Gloo = intrusive_ptr<c10d::Backend>;

TensorRef ref_for_exchange(const Tensor& tensor) {
  TORCH_CHECK(tensor.is_privateuseone(), "hccl moves tensors of an npu, got one on ", tensor.device());
  TORCH_CHECK(tensor.is_contiguous() || tensor.is_non_overlapping_and_dense(), "Tensors must be contiguous");
  return ref_of(tensor);
}

Refs refs_of(const Tensors& tensors) {
  Refs refs;
  for (const Tensor& tensor : tensors)
    refs.push_back(ref_for_exchange(tensor));
  return refs;
}

// What is only moved is moved as bytes, whatever its type.
Tensor bytes_of(const TensorRef& ref) {
  TensorRef flat;
  const int64_t elements = std::accumulate(ref.sizes.begin(), ref.sizes.end(), int64_t{1}, std::multiplies<>());
  flat.sizes = {elements * static_cast<int64_t>(c10::elementSize(ref.dtype))};
  flat.strides = {1};
  flat.dtype = at::ScalarType::Byte;
  flat.data = ref.data;
  flat.defined = true;
  return cpu_view(flat);
}

Tensors bytes_of(const Refs& refs) {
  Tensors all;
  for (const TensorRef& ref : refs)
    all.push_back(bytes_of(ref));
  return all;
}

uint64_t size_of(const Tensor& tensor) {
  return static_cast<uint64_t>(tensor.nbytes());
}

const Tensor& single(const Tensors& tensors) {
  TORCH_CHECK(tensors.size() == 1, "hccl works on one tensor for each process, got ", tensors.size());
  return tensors[0];
}

const Tensors& single(const std::vector<Tensors>& lists) {
  TORCH_CHECK(lists.size() == 1, "hccl works on one list of tensors for each process, got ", lists.size());
  return lists[0];
}

void finish(const intrusive_ptr<c10d::Work>& work) {
  const Rest waiting(Rest::For::peers);
  work->wait();
}

class Hccl final : public c10d::Backend {
 public:
  Hccl(Gloo gloo, std::shared_ptr<Communicator> group, std::chrono::milliseconds timeout)
      : Backend(group->facts.rank, group->facts.size), gloo_(std::move(gloo)), group_(std::move(group)), timeout_(timeout) {
    init();
  }

  const std::string getBackendName() const override {
    return "hccl";
  }
  intrusive_ptr<Options> getBackendOptions() override {
    auto options = c10::make_intrusive<Options>("hccl", timeout_);
    for (const int64_t rank : group_->facts.ranks)
      options->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
    return options;
  }
  bool supportsCoalescing() const override {
    return true;
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    timeout_ = timeout;
    gloo_->setTimeout(timeout);
  }
  c10d::ErrorType getError() override {
    return c10d::ErrorType::SUCCESS;
  }
  Communicator& group() {
    return *group_;
  }
  void shutdown() override {
    if (!in_forked_child())
      group_->synchronize();
  }

  intrusive_ptr<c10d::Work> allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Operation call{Collective::all_reduce, "c10d::allreduce_", "hcom_allReduce_", tensors, tensors, size_of(single(tensors))};
    const Reduction reduction(options.reduceOp);
    call.reduce = reduction.number;
    call.body = [gloo = gloo_, ref = ref_for_exchange(tensors[0]), reduction, size = size_] {
      Tensor view = cpu_view(ref);
      Tensors operands{Reduction::operand(view)};
      c10d::AllreduceOptions how;
      how.reduceOp = reduction.of(view);
      finish(gloo->allreduce(operands, how));
      reduction.divide(view, size);
    };
    return run(std::move(call), c10d::OpType::ALLREDUCE);
  }

  intrusive_ptr<c10d::Work> allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override {
    return each(tensors.size(), tensors, c10d::OpType::ALLREDUCE_COALESCED, [&](size_t i) {
      Tensors one{tensors[i]};
      return allreduce(one, options);
    });
  }

  intrusive_ptr<c10d::Work> broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Operation call{Collective::broadcast, "c10d::broadcast_", "hcom_broadcast_", tensors, tensors, size_of(single(tensors))};
    call.root = static_cast<int>(options.rootRank);
    call.body = [gloo = gloo_, ref = ref_for_exchange(tensors[0]), root = options.rootRank] {
      Tensors views{bytes_of(ref)};
      c10d::BroadcastOptions how;
      how.rootRank = root;
      finish(gloo->broadcast(views, how));
    };
    return run(std::move(call), c10d::OpType::BROADCAST);
  }

  intrusive_ptr<c10d::Work> reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    Operation call{Collective::reduce, "c10d::reduce_", "hcom_reduce_", tensors, tensors, size_of(single(tensors))};
    const Reduction reduction(options.reduceOp);
    call.root = static_cast<int>(options.rootRank);
    call.reduce = reduction.number;
    call.body = [gloo = gloo_, ref = ref_for_exchange(tensors[0]), reduction, root = options.rootRank, rank = rank_, size = size_] {
      Tensor view = cpu_view(ref);
      // gloo leaves partial sums in the tensors of the other ranks; hardware does not touch them.
      Tensor operand = rank == root ? Reduction::operand(view) : Reduction::operand(view).clone();
      Tensors operands{operand};
      c10d::ReduceOptions how;
      how.reduceOp = reduction.of(view);
      how.rootRank = root;
      finish(gloo->reduce(operands, how));
      if (rank == root)
        reduction.divide(view, size);
    };
    return run(std::move(call), c10d::OpType::REDUCE);
  }

  intrusive_ptr<c10d::Work> allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions&) override {
    Operation call{Collective::all_gather, "c10d::allgather_", "hcom_allGather_", inputs, single(outputs), size_of(single(inputs))};
    call.body = [gloo = gloo_, in = refs_of(inputs), out = refs_of(outputs[0])] {
      std::vector<Tensors> lists{bytes_of(out)};
      Tensors from = bytes_of(in);
      finish(gloo->allgather(lists, from));
    };
    return run(std::move(call), c10d::OpType::ALLGATHER);
  }

  intrusive_ptr<c10d::Work> _allgather_base(Tensor& output, Tensor& input, const c10d::AllgatherOptions&) override {
    check_parts(output, input, "output");
    Operation call{Collective::all_gather, "c10d::_allgather_base_", "hcom_allGather_", {input}, {output}, size_of(input)};
    call.body = [gloo = gloo_, in = ref_for_exchange(input), out = ref_for_exchange(output), size = size_] {
      Tensors from{bytes_of(in)};
      std::vector<Tensors> lists{bytes_of(out).chunk(size)};
      if (from[0].numel())
        finish(gloo->allgather(lists, from));
    };
    return run(std::move(call), c10d::OpType::_ALLGATHER_BASE);
  }

  intrusive_ptr<c10d::Work> allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::AllgatherOptions& options) override {
    return each(inputs.size(), outputs, c10d::OpType::COALESCED,
                [&](size_t i) { return _allgather_base(outputs[i], inputs[i], options); });
  }

  intrusive_ptr<c10d::Work> allgather_coalesced(std::vector<Tensors>& lists, Tensors& inputs,
                                                const c10d::AllgatherOptions& options) override {
    Tensors all;
    for (const Tensors& list : lists)
      all.insert(all.end(), list.begin(), list.end());
    return each(inputs.size(), all, c10d::OpType::ALLGATHER_COALESCED, [&](size_t i) {
      std::vector<Tensors> outputs(1);
      for (const Tensors& list : lists)
        outputs[0].push_back(list.at(i));
      Tensors one{inputs[i]};
      return allgather(outputs, one, options);
    });
  }

  intrusive_ptr<c10d::Work> reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                           const c10d::ReduceScatterOptions& options) override {
    const Tensor& output = single(outputs);
    for (const Tensor& input : single(inputs))
      TORCH_CHECK(input.numel() == output.numel() && input.scalar_type() == output.scalar_type(),
                  "hccl scatters parts of the size and type of the output");
    return reduce_scattered("c10d::reduce_scatter_", inputs[0], output, options.reduceOp, c10d::OpType::REDUCE_SCATTER);
  }

  intrusive_ptr<c10d::Work> _reduce_scatter_base(Tensor& output, Tensor& input,
                                                 const c10d::ReduceScatterOptions& options) override {
    check_parts(input, output, "input");
    return reduce_scattered("c10d::_reduce_scatter_base_", {input}, output, options.reduceOp, c10d::OpType::_REDUCE_SCATTER_BASE);
  }

  intrusive_ptr<c10d::Work> reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                            const c10d::ReduceScatterOptions& options) override {
    return each(inputs.size(), outputs, c10d::OpType::REDUCE_SCATTER_TENSOR_COALESCED,
                [&](size_t i) { return _reduce_scatter_base(outputs[i], inputs[i], options); });
  }

  intrusive_ptr<c10d::Work> alltoall_base(Tensor& output, Tensor& input, std::vector<int64_t>& output_splits,
                                          std::vector<int64_t>& input_splits, const c10d::AllToAllOptions&) override {
    const bool equal = output_splits.empty() && input_splits.empty();
    Operation call{Collective::all_to_all, "c10d::alltoall_base_", equal ? "hcom_alltoall_" : "hcom_alltoallv_", {input}, {output}};
    const auto sent = split_bytes(input, input_splits), received = split_bytes(output, output_splits);
    return exchanged(std::move(call), sent, received, c10d::OpType::ALLTOALL_BASE);
  }

  intrusive_ptr<c10d::Work> alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions&) override {
    TORCH_CHECK(static_cast<int>(inputs.size()) == size_ && static_cast<int>(outputs.size()) == size_,
                "alltoall takes a tensor for each rank");
    std::vector<int64_t> sent, received;
    for (const Tensor& tensor : inputs)
      sent.push_back(static_cast<int64_t>(size_of(tensor)));
    for (const Tensor& tensor : outputs)
      received.push_back(static_cast<int64_t>(size_of(tensor)));
    return exchanged({Collective::all_to_all, "c10d::alltoall_", "hcom_alltoallv_", inputs, outputs}, sent, received,
                     c10d::OpType::ALLTOALL);
  }

  intrusive_ptr<c10d::Work> gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override {
    Operation call{Collective::gather,     "c10d::gather_", "hcom_gather_", inputs, outputs.empty() ? Tensors() : outputs[0],
                   size_of(single(inputs))};
    call.root = static_cast<int>(options.rootRank);
    call.body = [gloo = gloo_, in = refs_of(inputs), out = refs_of(call.outputs), root = options.rootRank,
                 at_root = options.rootRank == rank_] {
      Tensors from = bytes_of(in);
      std::vector<Tensors> lists;
      if (at_root)
        lists.push_back(bytes_of(out));
      c10d::GatherOptions how;
      how.rootRank = root;
      finish(gloo->gather(lists, from, how));
    };
    return run(std::move(call), c10d::OpType::GATHER);
  }

  intrusive_ptr<c10d::Work> scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override {
    Operation call{Collective::scatter,     "c10d::scatter_", "hcom_scatter_", inputs.empty() ? Tensors() : inputs[0], outputs,
                   size_of(single(outputs))};
    call.root = static_cast<int>(options.rootRank);
    call.body = [gloo = gloo_, in = refs_of(call.inputs), out = refs_of(outputs), root = options.rootRank,
                 at_root = options.rootRank == rank_] {
      Tensors to = bytes_of(out);
      std::vector<Tensors> lists;
      if (at_root)
        lists.push_back(bytes_of(in));
      c10d::ScatterOptions how;
      how.rootRank = root;
      finish(gloo->scatter(to, lists, how));
    };
    return run(std::move(call), c10d::OpType::SCATTER);
  }

  intrusive_ptr<c10d::Work> send(Tensors& tensors, int to, int tag) override {
    return message({Collective::send, "c10d::send", "hcom_send_", tensors, {}, size_of(single(tensors))}, to, tag);
  }

  intrusive_ptr<c10d::Work> recv(Tensors& tensors, int from, int tag) override {
    return message({Collective::receive, "c10d::recv_", "hcom_receive_", {}, tensors, size_of(single(tensors))}, from, tag);
  }

  intrusive_ptr<c10d::Work> recvAnysource(Tensors& tensors, int tag) override {
    Operation call{Collective::receive, "c10d::recv_any_source_", "hcom_receive_", {}, tensors, size_of(single(tensors))};
    call.messages = {{-1, false, false, call.bytes}};
    auto source = std::make_shared<std::atomic<int>>(-1);
    call.body = [gloo = gloo_, refs = refs_of(tensors), tag, source] {
      Tensors views = bytes_of(refs);
      auto work = gloo->recvAnysource(views, tag);
      finish(work);
      *source = work->sourceRank();
    };
    auto work = run(std::move(call), c10d::OpType::RECVANYSOURCE);
    work->source = source;
    return work;
  }

  intrusive_ptr<c10d::Work> barrier(const c10d::BarrierOptions& options) override {
    Operation call{Collective::all_reduce, "c10d::barrier", "hcom_allReduce_", {}, {}, 4};
    call.reduce = 0;
    call.body = [gloo = gloo_] { finish(gloo->barrier()); };
    const int device = options.device && options.device->has_index() ? options.device->index()
                       : !options.device_ids.empty()                 ? static_cast<int>(options.device_ids[0])
                                                                     : current_device();
    auto work = run(std::move(call), c10d::OpType::BARRIER, device);
    work->host_waits = true;
    return work;
  }

  void startCoalescing() override {
    TORCH_CHECK(!batch_, "operators of this group are being coalesced already");
    batch_.emplace();
  }

  intrusive_ptr<c10d::Work> endCoalescing() override {
    TORCH_CHECK(batch_, "no operators of this group are being coalesced");
    Batch batch = std::move(*batch_);
    batch_.reset();
    if (batch.call.messages.empty())
      return batch.last;
    batch.call.body = [begin = std::move(batch.begin)] {  // all are begun before any is waited for
      std::vector<intrusive_ptr<c10d::Work>> works;
      for (const auto& one : begin)
        works.push_back(one());
      for (const auto& work : works)
        finish(work);
    };
    return run(std::move(batch.call), c10d::OpType::COALESCED);
  }

 private:
  struct Batch {
    Operation call{Collective::batch, "c10d::coalesced", "hcom_batchSendRecv_", {}, {}};
    std::vector<std::function<intrusive_ptr<c10d::Work>()>> begin;  // the messages
    intrusive_ptr<StreamWork> last;  // of the collectives among them, which do not wait for the end
  };

  void check_parts(const Tensor& whole, const Tensor& part, const char* which) const {
    TORCH_CHECK(whole.numel() == part.numel() * size_ && whole.scalar_type() == part.scalar_type(), "the ", which,
                " tensor must have ", size_, " times the elements of the other, and its type");
  }

  std::vector<int64_t> split_bytes(const Tensor& tensor, const std::vector<int64_t>& splits) const {
    const int64_t rows = tensor.dim() ? tensor.size(0) : 1;
    if (splits.empty()) {
      TORCH_CHECK(rows % size_ == 0, "the first dimension of an all-to-all tensor must be divisible by the number of ranks");
      return std::vector<int64_t>(static_cast<size_t>(size_), static_cast<int64_t>(tensor.nbytes()) / size_);
    }
    TORCH_CHECK(static_cast<int>(splits.size()) == size_ && std::accumulate(splits.begin(), splits.end(), int64_t{0}) == rows,
                "split sizes must be one for each rank and sum up to the first dimension");
    std::vector<int64_t> bytes;
    for (const int64_t split : splits)
      bytes.push_back(rows ? split * static_cast<int64_t>(tensor.nbytes()) / rows : 0);
    return bytes;
  }

  intrusive_ptr<c10d::Work> exchanged(Operation call, std::vector<int64_t> sent, std::vector<int64_t> received, c10d::OpType type) {
    call.bytes = static_cast<uint64_t>(std::accumulate(sent.begin(), sent.end(), int64_t{0}));
    call.bytes_to.assign(sent.begin(), sent.end());
    call.body = [gloo = gloo_, in = refs_of(call.inputs), out = refs_of(call.outputs), sent, received]() mutable {
      Tensors from = bytes_of(in), to = bytes_of(out);
      Tensor source = from.size() == 1 ? from[0] : at::cat(from);
      Tensor target = to.size() == 1 ? to[0] : at::cat(to);
      finish(gloo->alltoall_base(target, source, received, sent));
      if (to.size() > 1)
        for (size_t i = 0, at = 0; i < to.size(); at += static_cast<size_t>(to[i].numel()), i++)
          to[i].copy_(target.narrow(0, static_cast<int64_t>(at), to[i].numel()));
    };
    return run(std::move(call), type);
  }

  intrusive_ptr<c10d::Work> reduce_scattered(const char* op, const Tensors& inputs, const Tensor& output,
                                             const c10d::ReduceOp& wanted, c10d::OpType type) {
    Operation call{Collective::reduce_scatter, op, "hcom_reduceScatter_", inputs, {output}, size_of(output)};
    const Reduction reduction(wanted);
    call.reduce = reduction.number;
    call.body = [gloo = gloo_, in = refs_of(inputs), out = ref_for_exchange(output), reduction, rank = rank_, size = size_] {
      Tensors parts;
      for (const TensorRef& ref : in)
        parts.push_back(Reduction::operand(cpu_view(ref)).reshape({-1}));
      Tensor result = cpu_view(out);
      // A copy either way: the input is not to change.
      Tensors all{at::cat(parts)};
      c10d::AllreduceOptions how;
      how.reduceOp = reduction.of(result);
      finish(gloo->allreduce(all, how));
      Tensor mine = all[0].chunk(size)[static_cast<size_t>(rank)];
      Reduction::operand(result).copy_(mine.view(result.sizes()));
      reduction.divide(result, size);
    };
    return run(std::move(call), type);
  }

  intrusive_ptr<c10d::Work> message(Operation call, int peer, int tag) {
    TORCH_CHECK(peer >= 0 && peer < size_ && peer != rank_, "a message needs another rank of the group, got ", peer);
    const bool sends = call.what == Collective::send;
    call.messages = {{peer, sends, tag == 0, call.bytes}};
    const Refs refs = refs_of(sends ? call.inputs : call.outputs);
    auto begin = [gloo = gloo_, refs, peer, tag, sends] {
      Tensors views = bytes_of(refs);
      return sends ? gloo->send(views, peer, tag) : gloo->recv(views, peer, tag);
    };
    if (!batch_) {
      call.body = [begin] { finish(begin()); };
      return run(std::move(call), sends ? c10d::OpType::SEND : c10d::OpType::RECV);
    }
    Operation& all = batch_->call;
    all.bytes += call.bytes;
    all.messages.push_back(call.messages[0]);
    all.inputs.insert(all.inputs.end(), call.inputs.begin(), call.inputs.end());
    all.outputs.insert(all.outputs.end(), call.outputs.begin(), call.outputs.end());
    batch_->begin.push_back(begin);
    return c10::make_intrusive<StreamWork>(rank_, c10d::OpType::COALESCED, std::make_shared<Event>(), 0, 0, Tensors());
  }

  intrusive_ptr<StreamWork> run(Operation call, c10d::OpType type, int device = -1) {
    check_not_forked();
    for (const auto* tensors : {&call.inputs, &call.outputs})
      for (const Tensor& tensor : *tensors) {
        TORCH_CHECK(device < 0 || tensor.device().index() == device, "the tensors of ", call.op, " are on two devices");
        device = tensor.device().index();
      }
    Tensors outputs = call.outputs;
    int64_t stream = 0;
    auto end = group_->submit(std::move(call), device, &stream);
    auto work = c10::make_intrusive<StreamWork>(rank_, type, std::move(end), device, stream, std::move(outputs));
    if (batch_)
      batch_->last = work;
    return work;
  }

  // Several operators in a row; the last one ends last, as they share a stream.
  template <class Step>
  intrusive_ptr<c10d::Work> each(size_t count, const Tensors& outputs, c10d::OpType type, Step step) {
    TORCH_CHECK(count > 0, "there is nothing to communicate");
    intrusive_ptr<c10d::Work> last;
    for (size_t i = 0; i < count; i++)
      last = step(i);
    return static_cast<StreamWork&>(*last).with(type, outputs);
  }

  const Gloo gloo_;
  const std::shared_ptr<Communicator> group_;
  std::chrono::milliseconds timeout_;
  std::optional<Batch> batch_;
};

}  // namespace

// Gives `holder`, which has a gloo backend for the CPU, one for the device that works through it.
void attach_hccl(const intrusive_ptr<c10d::ProcessGroup>& holder, const std::string& group_name, std::vector<int64_t> ranks,
                 int64_t file, const std::string& token, int64_t timeout_ms) {
  const int rank = holder->getRank(), size = holder->getSize();
  auto group = std::make_shared<Communicator>(Communicator::Facts{group_name, rank, size, std::move(ranks)},
                                              std::make_unique<Arrivals>(size, static_cast<int>(file), token));
  holder->setBackend(
      c10::kPrivateUse1, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::make_intrusive<Hccl>(holder->getBackend(c10::kCPU), std::move(group), std::chrono::milliseconds(timeout_ms)));
}

int64_t hccl_stream(const intrusive_ptr<c10d::ProcessGroup>& group, bool messages) {
  auto* backend = dynamic_cast<Hccl*>(group->getBackend(c10::kPrivateUse1).get());
  TORCH_CHECK(backend, "the group has no backend hccl of its own");
  return backend->group().stream_number(current_device(), messages);
}

TORCH_LIBRARY_FRAGMENT(stepscope_npu, m) {
  m.def("hccl_stream(__torch__.torch.classes.c10d.ProcessGroup group, bool messages) -> int", &hccl_stream);
  m.def(
      "attach_hccl(__torch__.torch.classes.c10d.ProcessGroup holder, str group_name, int[] ranks, int file, str token, int "
      "timeout_ms) -> ()",
      &attach_hccl);
  m.def("arrivals_bytes(int size) -> int",
        [](int64_t size) { return static_cast<int64_t>(Arrivals::bytes(static_cast<int>(size))); });
}

}  // namespace simnpu
