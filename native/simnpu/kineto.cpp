// SPDX-License-Identifier: Apache-2.0
// torch.profiler on the device: launches, kernels, copies and collectives become activities of Kineto.
//
// Kineto's buffer is its own, so that the recorder may run at the same time. Not every torch can take them.
#if __has_include(<libkineto.h>) && __has_include(<torch/csrc/profiler/standalone/privateuse1_profiler.h>)
#define USE_KINETO
#define FMT_HEADER_ONLY 1
#include <libkineto.h>
#include <output_base.h>
#include <time.h>
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
#include <unistd.h>

#include <set>
#include <string>
#include <vector>

#include "operators/kernels.h"
#include "runtime/runtime.h"

namespace simnpu {
namespace {

using namespace libkineto;

int64_t epoch_ns() {
  timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec * 1000000000ll + t.tv_nsec;
}

// From the device's clock to Kineto's, by two readings of both.
class Clock {
 public:
  void begin() {
    begin_ = now_ns();
    offset_ = epoch_ns() - begin_;
  }
  void end() {
    end_ = now_ns();
    drift_ = epoch_ns() - end_ - offset_;
  }
  int64_t epoch(int64_t time) const {
    const double share = end_ > begin_ ? static_cast<double>(time - begin_) / static_cast<double>(end_ - begin_) : 0;
    return time + offset_ + static_cast<int64_t>(share * static_cast<double>(drift_));
  }
  int64_t begin_epoch() const {
    return epoch(begin_);
  }
  int64_t end_epoch() const {
    return epoch(end_);
  }

 private:
  int64_t begin_ = 0, end_ = 0, offset_ = 0, drift_ = 0;
};

std::string field(const std::string& json, const std::string& name) {
  const std::string mark = "\"" + name + "\":\"";
  const size_t at = json.find(mark);
  if (at == std::string::npos)
    return "";
  const size_t start = at + mark.size();
  return json.substr(start, json.find('"', start) - start);
}

struct Names {
  std::string launch, task;
  ActivityType type;
};

Names names_of(const TaskRecord& record) {
  switch (record.kind) {
    case TaskKind::copy_h2d: return {"aclrtMemcpyAsync", "Memcpy HtoD", ActivityType::GPU_MEMCPY};
    case TaskKind::copy_d2h: return {"aclrtMemcpyAsync", "Memcpy DtoH", ActivityType::GPU_MEMCPY};
    case TaskKind::copy_d2d: return {"aclrtMemcpyAsync", "Memcpy DtoD", ActivityType::GPU_MEMCPY};
    default: break;
  }
  const std::string text = description(record.description);
  const std::string api = field(text, "api"), name = field(text, "name");
  return {api.empty() ? name : api, name, ActivityType::CONCURRENT_KERNEL};
}

bool is_shown(const TaskRecord& record) {
  return record.kind <= TaskKind::copy_d2d || record.kind == TaskKind::collective;
}

class Session final : public IActivityProfilerSession {
 public:
  void start() override {
    activity_records().clear();
    clock_.begin();
    activities_flag = true;
    status_ = TraceStatus::RECORDING;
  }

  void stop() override {
    for (int i = 0; i < device_count(); i++)
      for (Stream* stream : device(i).streams())
        stream->finish();
    activities_flag = false;
    clock_.end();
    status_ = TraceStatus::PROCESSING;
  }

  std::vector<std::string> errors() override {
    return {};
  }

  void processTrace(ActivityLogger& logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, 0, 0);
  }

  void processTrace(ActivityLogger& logger, getLinkedActivityCallback linked, int64_t, int64_t) override {
    buffer_.span = TraceSpan(clock_.begin_epoch(), clock_.end_epoch(), "npu");
    std::vector<TaskRecord> part(4096);
    while (size_t count = activity_records().drain(part.data(), part.size())) {
      for (size_t i = 0; i < count; i++)
        if (is_shown(part[i]))
          add(part[i], part[i].correlation ? linked(static_cast<int32_t>(part[i].correlation)) : nullptr, logger);
    }
  }

  std::unique_ptr<DeviceInfo> getDeviceInfo() override {
    return nullptr;  // there may be several; they are told below
  }
  std::vector<ResourceInfo> getResourceInfos() override {
    std::vector<ResourceInfo> rows;
    for (const auto& [device, stream] : streams_)
      rows.push_back({stream, stream, device, "stream " + std::to_string(stream)});
    return rows;
  }
  std::unique_ptr<CpuTraceBuffer> getTraceBuffer() override {
    return std::make_unique<CpuTraceBuffer>(std::move(buffer_));
  }

  void pushCorrelationId(uint64_t id) override {
    outer().push_back(current_correlation);
    current_correlation = id;
  }
  void popCorrelationId() override {
    if (outer().empty())
      return;
    current_correlation = outer().back();
    outer().pop_back();
  }

 private:
  static std::vector<uint64_t>& outer() {
    static thread_local std::vector<uint64_t> ids;
    return ids;
  }

  GenericTraceActivity& activity(ActivityType type, const std::string& name, const TaskRecord& record, int64_t start, int64_t end) {
    buffer_.emplace_activity(buffer_.span, type, name);
    GenericTraceActivity& made = *buffer_.activities.back();
    made.startTime = clock_.epoch(start);
    made.endTime = clock_.epoch(end);
    made.id = static_cast<int32_t>(record.connection);
    made.flow.id = static_cast<uint32_t>(record.connection);
    made.flow.type = kLinkAsyncCpuGpu;
    made.addMetadata("correlation", record.connection);
    return made;
  }

  void add(const TaskRecord& record, const ITraceActivity* caller, ActivityLogger& logger) {
    const Names names = names_of(record);
    GenericTraceActivity& launch = activity(ActivityType::PRIVATEUSE1_RUNTIME, names.launch, record, record.launch_start,
                                            record.launch_end);
    launch.device = getpid();
    launch.resource = launch.threadId = static_cast<int32_t>(record.launch_thread);
    launch.flow.start = 1;
    launch.linked = caller;
    launch.log(logger);
    GenericTraceActivity& task = activity(names.type, names.task, record, record.start, record.end);
    task.device = record.device;
    task.resource = record.stream;
    task.linked = caller;
    task.addMetadata("device", record.device);
    task.addMetadata("stream", record.stream);
    task.addMetadata("External id", record.correlation);
    if (record.bytes)
      task.addMetadata("bytes", record.bytes);
    task.log(logger);
    streams_.emplace(record.device, record.stream);
  }

  Clock clock_;
  CpuTraceBuffer buffer_;
  std::set<std::pair<int32_t, int32_t>> streams_;
};

class Profiler final : public IActivityProfiler {
 public:
  const std::string& name() const override {
    static const std::string text = "stepscope simulated NPU";
    return text;
  }
  const std::set<ActivityType>& availableActivities() const override {
    static const std::set<ActivityType> types{ActivityType::PRIVATEUSE1_RUNTIME, ActivityType::CONCURRENT_KERNEL,
                                              ActivityType::GPU_MEMCPY};
    return types;
  }
  std::unique_ptr<IActivityProfilerSession> configure(const std::set<ActivityType>& wanted, const Config&) override {
    if (!wanted.count(ActivityType::PRIVATEUSE1_RUNTIME) || in_forked_child())
      return nullptr;
    return std::make_unique<Session>();
  }
  std::unique_ptr<IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType>& wanted,
                                                      const Config& config) override {
    return configure(wanted, config);
  }
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

}  // namespace
}  // namespace simnpu
#endif
