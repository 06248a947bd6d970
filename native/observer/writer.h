// SPDX-License-Identifier: Apache-2.0
// From the streams of the threads to the files of a FRAMEWORK folder (framework-raw.md 4), by one background thread.
#pragma once
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <condition_variable>
#include <deque>
#include <memory>
#include <thread>
#include <unordered_map>

#include "buffer.h"
#include "inputs.h"
#include "stream.h"

namespace observer {

// A file that appears with its first bytes and ends with a whole record even on a full disk.
class File {
 public:
  explicit File(std::string name) : name_(std::move(name)) {}

  void open_in(const std::string& folder) {
    path_ = folder + "/" + name_;
    buffer_.clear();
    written = 0;
    records = 0;
    error = 0;
  }

  Buffer& out() {
    return buffer_;
  }

  void flush_if_large() {
    if (buffer_.size() >= (1u << 18))
      flush();
  }

  void flush() {
    if (!buffer_.size())
      return;
    if (fd_ < 0 && !error) {
      fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0640);
      if (fd_ < 0)
        error = errno;
    }
    size_t done = 0;
    while (!error && done < buffer_.size()) {
      ssize_t n = ::write(fd_, buffer_.data() + done, buffer_.size() - done);
      if (n >= 0)
        done += static_cast<size_t>(n);
      else if (errno != EINTR)
        error = errno;
    }
    if (!error)
      written += done;
    else if (fd_ >= 0 && done && !remove_tail(done))
      written += done;  // a torn tail stays: readers count it
    buffer_.clear();
  }

  void close() {
    flush();
    abandon();
  }

  void abandon() {
    if (fd_ >= 0)
      ::close(fd_);
    fd_ = -1;
    buffer_.clear();
  }

  uint64_t written = 0, records = 0;
  int error = 0;

 private:
  // Cut off what was written last, unless somebody else has appended since.
  bool remove_tail(size_t bytes) {
    off_t end = lseek(fd_, 0, SEEK_CUR);
    struct stat now;
    return fstat(fd_, &now) == 0 && now.st_size == end && ftruncate(fd_, end - static_cast<off_t>(bytes)) == 0;
  }

  std::string name_, path_;
  Buffer buffer_;
  int fd_ = -1;
};

#pragma pack(push, 1)
struct OpRecord {  // framework-raw.md 4.1
  uint16_t type = 1;
  uint32_t length = 0;
  int64_t start, end, sequence;
  uint64_t process, thread, end_thread, forward_thread;
  uint8_t scope, is_async;
};
struct MarkRecord {  // 4.2
  uint16_t type = 2;
  uint32_t length;
  int64_t time;
  uint64_t category, correlation, thread, process;
};
struct MemoryRecord {  // 4.3
  uint16_t type = 3;
  uint32_t length = 77;
  uint64_t address;
  int64_t time, size;
  uint64_t allocated, reserved, active;
  int64_t stream = 0;
  uint8_t device_type, device, component = 0, freed, allocator = 0;
  uint64_t thread, process;
};
struct CallRecord {  // 4.4
  uint64_t time, thread, process, key;
  uint8_t tag;
};
struct CalleeRecord {  // 4.5
  uint16_t type = 4;
  uint32_t length;
  uint64_t key;
};
#pragma pack(pop)
static_assert(sizeof(OpRecord) == 6 + 58 && sizeof(MarkRecord) == 6 + 40 && sizeof(MemoryRecord) == 6 + 77);
static_assert(sizeof(CallRecord) == 33 && sizeof(CalleeRecord) == 6 + 8);

// Texts of Python callees, by number; grows while the capture runs.
struct Callees {
  std::mutex mutex;
  std::deque<std::string> texts;
};

constexpr uint64_t kExitKey = UINT64_MAX;
constexpr const char* kExitText = "__torch_npu_profiler_python_tracer_exit";

class Writer {
 public:
  struct Files {
    File ops{"torch.op_range"}, marks{"torch.op_mark"}, memory{"torch.memory_usage"}, calls{"torch.python_tracer_func"},
        callees{"torch.python_tracer_hash"};
    template <class F>
    void each(F f) {
      f(callees), f(ops), f(marks), f(memory), f(calls);
    }
  } files;

  Writer(Pool& pool, Callees& callees) : pool_(pool), callees_(callees) {}

  void begin(const std::string& folder) {
    files.each([&](File& file) { file.open_in(folder); });
    process_ = static_cast<uint64_t>(getpid());
    readers_.clear();
    callees_written_ = 0;
    clock_.begin();
    release_zombies();
  }

  void follow(Stream* stream) {
    readers_.push_back(std::make_unique<Reader>(stream));
  }

  // Write whatever is published. `last`: no thread writes any more; calls left open are closed at `end`.
  void drain(bool last, uint64_t end) {
    for (auto& reader : readers_)
      reader->look();
    clock_.advance();
    // Names come before the calls that bear them, of which a full buffer is written at once: the process may be killed in between.
    write_callees();
    files.callees.flush();
    for (auto& reader : readers_)
      read(*reader);
    if (last)
      for (auto& reader : readers_) {
        close_calls(*reader, end);
        quarantine(*reader);
      }
    files.each([](File& file) { file.flush(); });
  }

  void finish() {
    files.each([](File& file) { file.close(); });
  }

  uint64_t bytes() {
    uint64_t sum = 0;
    files.each([&](File& file) { sum += file.written; });
    return sum;
  }

  int error() {
    int first = 0;
    files.each([&](File& file) { first = first ? first : file.error; });
    return first;
  }

  struct ThreadReport {
    uint64_t thread, logical_thread, ops, dropped;
  };
  std::vector<ThreadReport> threads() const {
    std::vector<ThreadReport> all;
    for (const auto& reader : readers_)
      all.push_back({reader->thread, reader->logical_thread, reader->ops, reader->stream->dropped.load()});
    return all;
  }

 private:
  struct Open {  // a record the writer has seen but that is still running, or whose memory torch still holds
    Op* op;
    Chunk* chunk;
    bool written;
    std::string fields;  // made when it was seen: its numbers may be forgotten by the time it ends
  };

  struct Reader {
    explicit Reader(Stream* s) : stream(s), options(s->options), thread(s->thread), logical_thread(s->logical_thread) {}
    // Remember how far the stream was published before the clock's pair is taken.
    void look() {
      if (!chunk) {
        chunk = stream->first.load(std::memory_order_acquire);
        at = 0;
      }
      until_chunk = chunk;
      if (!chunk)
        return;
      while (Chunk* next = until_chunk->next.load(std::memory_order_acquire))
        until_chunk = next;
      until = until_chunk->used.load(std::memory_order_acquire);
    }
    Stream* stream;
    uint32_t options;
    uint64_t thread, logical_thread;
    Chunk* chunk = nullptr;
    size_t at = 0;
    Chunk* until_chunk = nullptr;
    size_t until = 0;
    std::vector<std::string> names;  // as fields, ready to be copied
    std::vector<std::unique_ptr<InputTexts>> inputs;
    std::unordered_map<uint64_t, uint64_t> flops;
    std::vector<Open> open;
    std::vector<bool> calls;  // open Python calls; true for C functions
    std::vector<Chunk*> left;  // chunks the thread has left and that wait for their last record
    uint64_t ops = 0;
  };

  void read(Reader& r) {
    look_at_open(r);
    while (r.chunk) {
      bool current = r.chunk == r.until_chunk;
      size_t end = current ? r.until : r.chunk->used.load(std::memory_order_acquire);
      while (r.at < end)
        r.at += one(r, r.chunk->bytes + r.at);
      if (current)
        return;
      Chunk* next = r.chunk->next.load(std::memory_order_acquire);
      if (r.chunk->unfinished)
        r.left.push_back(r.chunk);
      else
        pool_.give(r.chunk);
      r.chunk = next;
      r.at = 0;
    }
  }

  size_t one(Reader& r, char* p) {
    Head& head = *reinterpret_cast<Head*>(p);
    switch (head.kind) {
      case Kind::Op: {
        op_seen(r, reinterpret_cast<Op*>(p + sizeof(Head)));
        return kOpSize + head.words * 8;
      }
      case Kind::Name:
      case Kind::Inputs: {
        auto& d = *reinterpret_cast<Definition*>(p);
        if (head.kind == Kind::Name)
          r.names.push_back(name_field(p + sizeof(Definition), d.length));
        else
          r.inputs.push_back(std::make_unique<InputTexts>(p + sizeof(Definition), d.length));
        return sizeof(Definition) + head.words * 8;
      }
      case Kind::ForgetNames:
        r.names.clear();
        r.flops.clear();
        return sizeof(Head);
      case Kind::ForgetInputs:
        r.inputs.clear();
        r.flops.clear();
        return sizeof(Head);
      case Kind::Memory: memory_event(r, *reinterpret_cast<MemoryEvent*>(p)); return sizeof(MemoryEvent);
      case Kind::Mark: {
        auto& mark = *reinterpret_cast<MarkEvent*>(p);
        mark_event(r, mark, p + sizeof(MarkEvent));
        return sizeof(MarkEvent) + head.words * 8;
      }
      case Kind::CloseCalls: close_calls(r, reinterpret_cast<CallEvent*>(p)->time); return sizeof(CallEvent);
      default: call_event(r, *reinterpret_cast<CallEvent*>(p)); return sizeof(CallEvent);
    }
  }

  // ---- operators

  std::string name_field(const char* text, size_t length) {
    scratch_.clear();
    put_text(scratch_, 2, text, length);
    return std::string(scratch_.data(), scratch_.size());
  }

  void op_seen(Reader& r, Op* op) {
    if (op->end.load(std::memory_order_acquire)) {
      Buffer& out = files.ops.out();
      size_t begin = out.size();
      fixed_part(r, op, out);
      fields(r, op, out);
      finish_op(r, out, begin);
      if (op->head().gone.load(std::memory_order_acquire))
        return;
      r.open.push_back({op, r.chunk, true, {}});
    } else {
      scratch_.clear();
      fields(r, op, scratch_);
      r.open.push_back({op, r.chunk, false, std::string(scratch_.data(), scratch_.size())});
    }
    r.chunk->unfinished++;
  }

  void look_at_open(Reader& r) {
    bool freed = false;
    for (size_t i = 0; i < r.open.size();) {
      Open& entry = r.open[i];
      if (!entry.written && entry.op->end.load(std::memory_order_acquire)) {
        Buffer& out = files.ops.out();
        size_t begin = out.size();
        fixed_part(r, entry.op, out);
        out.append(entry.fields);
        finish_op(r, out, begin);
        entry.written = true;
      }
      if (entry.written && entry.op->head().gone.load(std::memory_order_acquire)) {
        freed |= !--entry.chunk->unfinished;
        if (&entry != &r.open.back())
          entry = std::move(r.open.back());
        r.open.pop_back();
      } else {
        i++;
      }
    }
    if (!freed)
      return;
    for (size_t i = 0; i < r.left.size();) {
      if (r.left[i]->unfinished) {
        i++;
        continue;
      }
      pool_.give(r.left[i]);
      r.left[i] = r.left.back();
      r.left.pop_back();
    }
  }

  void fixed_part(Reader& r, Op* op, Buffer& out) {
    // The record is packed: std::max may not refer to a member of it.
    const int64_t start = clock_.ns(op->start);
    OpRecord record;
    record.start = start;
    record.end = std::max(start, clock_.ns(op->end.load(std::memory_order_relaxed)));
    record.sequence = op->sequence;
    record.process = process_;
    record.thread = r.thread;
    record.end_thread = op->end_thread;
    record.forward_thread = op->forward_thread;
    record.scope = op->head().scope;
    record.is_async = op->head().flags & kAsync;
    out.put(record);
  }

  void finish_op(Reader& r, Buffer& out, size_t begin) {
    uint32_t length = static_cast<uint32_t>(out.size() - begin - 6);
    memcpy(out.data() + begin + offsetof(OpRecord, length), &length, 4);
    files.ops.records++;
    r.ops++;
    files.ops.flush_if_large();
  }

  void fields(Reader& r, Op* op, Buffer& out) {
    Head& head = op->head();
    const char* extra = reinterpret_cast<char*>(op) + sizeof(Op);
    size_t words = head.words;
    bool inside = head.flags & kNameInside;
    if (inside) {
      put_text(out, 2, extra, op->name);
      extra += padded(op->name);
      words -= padded(op->name) / 8;
    } else {
      out.append(r.names[op->name]);
    }
    if (op->inputs == Texts::kNone)
      return;
    const InputTexts& in = *r.inputs[op->inputs];
    if (r.options & kShapes) {
      out.append(in.fields);
      if (in.named)
        in.put_tensors(out, reinterpret_cast<const uint64_t*>(extra), words);
    }
    if ((r.options & kFlops) && !inside)
      put_flops(r, op, in, out);
  }

  void put_flops(Reader& r, Op* op, const InputTexts& in, Buffer& out) {
    auto [known, fresh] = r.flops.try_emplace(uint64_t{op->name} << 32 | op->inputs, 0);
    if (fresh)
      known->second = flops_of(r.names[op->name].substr(6), in);
    if (!known->second)
      return;
    std::string text = std::to_string(known->second);
    out.field(10, text.data(), text.size());
  }

  static void put_text(Buffer& out, uint16_t id, const char* text, size_t length) {
    out.field(id, text, length);
    make_utf8(out.data() + out.size() - length, length);
  }

  // ---- the other records

  void memory_event(Reader& r, const MemoryEvent& event) {
    MemoryRecord record;
    record.address = event.address;
    record.time = clock_.ns(event.time);
    record.size = event.size;
    record.allocated = event.allocated;
    record.reserved = event.reserved;
    record.active = event.head.scope ? event.allocated : 0;
    record.device_type = event.head.scope;
    record.device = event.head.flags;
    record.freed = event.size < 0;
    record.thread = r.thread;
    record.process = process_;
    files.memory.out().put(record);
    files.memory.records++;
    files.memory.flush_if_large();
  }

  void mark_event(Reader& r, const MarkEvent& mark, const char* name) {
    MarkRecord record;
    record.length = static_cast<uint32_t>(46 + mark.length);
    record.time = clock_.ns(mark.time);
    record.category = mark.head.scope;
    record.correlation = mark.correlation;
    record.thread = r.thread;
    record.process = process_;
    files.marks.out().put(record);
    put_text(files.marks.out(), 1, name, mark.length);
    files.marks.records++;
    files.marks.flush_if_large();
  }

  void call_event(Reader& r, const CallEvent& event) {
    bool call = event.head.kind == Kind::Call || event.head.kind == Kind::CCall;
    if (call) {
      r.calls.push_back(event.head.kind == Kind::CCall);
      put_call(r, event.time, event.head.words, event.head.kind == Kind::CCall ? 2 : 0);
    } else if (!r.calls.empty()) {  // a return from a call made before the recording has nothing to end
      put_call(r, event.time, kExitKey, r.calls.back() ? 3 : 1);
      r.calls.pop_back();
    }
  }

  void close_calls(Reader& r, uint64_t time) {
    for (; !r.calls.empty(); r.calls.pop_back())
      put_call(r, time, kExitKey, r.calls.back() ? 3 : 1);
  }

  void put_call(Reader& r, uint64_t time, uint64_t key, uint8_t tag) {
    files.calls.out().put(CallRecord{static_cast<uint64_t>(clock_.ns(time)), r.thread, process_, key, tag});
    files.calls.records++;
    files.calls.flush_if_large();
  }

  void write_callees() {
    std::lock_guard<std::mutex> lock(callees_.mutex);
    if (!callees_written_ && !callees_.texts.empty())
      put_callee(kExitKey, kExitText);
    for (; callees_written_ < callees_.texts.size(); callees_written_++)
      put_callee(callees_written_, callees_.texts[callees_written_]);
  }

  void put_callee(uint64_t key, const std::string& text) {
    CalleeRecord record;
    record.length = static_cast<uint32_t>(14 + text.size());
    record.key = key;
    files.callees.out().put(record);
    put_text(files.callees.out(), 1, text.data(), text.size());
    files.callees.records++;
  }

  // ---- memory that torch still holds

  void quarantine(Reader& r) {
    look_at_open(r);
    if (r.chunk) {
      r.left.push_back(r.chunk);
      r.chunk = nullptr;
    }
    for (Chunk* chunk : r.left) {
      if (!chunk->unfinished) {
        pool_.give(chunk);
        continue;
      }
      zombies_.push_back({chunk, {}});
      for (Open& entry : r.open)
        if (entry.chunk == chunk)
          zombies_.back().ops.push_back(entry.op);
    }
    r.left.clear();
    r.open.clear();
    r.stream->first.store(nullptr, std::memory_order_relaxed);
  }

  void release_zombies() {
    for (size_t i = 0; i < zombies_.size();) {
      bool held = false;
      for (Op* op : zombies_[i].ops)
        held |= !op->head().gone.load(std::memory_order_acquire);
      if (held) {
        i++;
        continue;
      }
      pool_.give(zombies_[i].chunk);
      zombies_[i] = std::move(zombies_.back());
      zombies_.pop_back();
    }
  }

  struct Zombie {
    Chunk* chunk;
    std::vector<Op*> ops;
  };

  Pool& pool_;
  Callees& callees_;
  Clock clock_;
  Buffer scratch_;
  uint64_t process_ = 0;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::vector<Zombie> zombies_;
  size_t callees_written_ = 0;
};

}  // namespace observer
