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

#include "inputs.h"
#include "stream.h"

namespace observer {

// A file that appears with its first bytes and ends with a whole record even on a full disk.
class File {
 public:
  explicit File(std::string name) : name_(std::move(name)) {
  }

  void open_in(const std::string& folder) {
    path_ = folder + "/" + name_;
    buffer_.clear();
    written = 0;
    records = 0;
    error = 0;
  }

  std::string& out() {
    return buffer_;
  }

  void flush_if_large() {
    if (buffer_.size() >= (1u << 18))
      flush();
  }

  void flush() {
    if (buffer_.empty())
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
    else if (fd_ >= 0 && done && ftruncate(fd_, static_cast<off_t>(written)) != 0)
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
  std::string name_, path_, buffer_;
  int fd_ = -1;
};

template <class T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

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
      f(ops), f(marks), f(memory), f(calls), f(callees);
    }
  } files;

  Writer(Pool& pool, Callees& callees) : pool_(pool), callees_(callees) {
  }

  void begin(const std::string& folder, uint32_t options) {
    files.each([&](File& file) { file.open_in(folder); });
    options_ = options;
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
    for (auto& reader : readers_) reader->look();
    clock_.advance();
    for (auto& reader : readers_) read(*reader);
    if (last)
      for (auto& reader : readers_) {
        close_calls(*reader, end);
        quarantine(*reader);
      }
    write_callees();
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
    explicit Reader(Stream* s) : stream(s), thread(s->thread), logical_thread(s->logical_thread) {
    }
    // Remember how far the stream was published before the clock's pair is taken.
    void look() {
      if (!chunk) {
        chunk = stream->first.load(std::memory_order_acquire);
        at = 0;
      }
      until_chunk = chunk;
      if (!chunk)
        return;
      while (Chunk* next = until_chunk->next.load(std::memory_order_acquire)) until_chunk = next;
      until = until_chunk->used.load(std::memory_order_acquire);
    }
    Stream* stream;
    uint64_t thread, logical_thread;
    Chunk* chunk = nullptr;
    size_t at = 0;
    Chunk* until_chunk = nullptr;
    size_t until = 0;
    std::vector<std::string> names;
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
      while (r.at < end) r.at += one(r, r.chunk->bytes + r.at);
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
          r.names.emplace_back(p + sizeof(Definition), d.length);
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
      case Kind::Memory:
        memory_event(r, *reinterpret_cast<MemoryEvent*>(p));
        return sizeof(MemoryEvent);
      case Kind::Mark: {
        auto& mark = *reinterpret_cast<MarkEvent*>(p);
        mark_event(r, mark, p + sizeof(MarkEvent));
        return sizeof(MarkEvent) + head.words * 8;
      }
      case Kind::CloseCalls:
        close_calls(r, reinterpret_cast<CallEvent*>(p)->time);
        return sizeof(CallEvent);
      default:
        call_event(r, *reinterpret_cast<CallEvent*>(p));
        return sizeof(CallEvent);
    }
  }

  // ---- operators

  void op_seen(Reader& r, Op* op) {
    if (op->end.load(std::memory_order_acquire)) {
      std::string& out = files.ops.out();
      size_t begin = out.size();
      fixed_part(r, op, out);
      fields(r, op, out);
      finish_op(r, out, begin);
      if (op->head().gone.load(std::memory_order_acquire))
        return;
      r.open.push_back({op, r.chunk, true, {}});
    } else {
      std::string text;
      fields(r, op, text);
      r.open.push_back({op, r.chunk, false, std::move(text)});
    }
    r.chunk->unfinished++;
  }

  void look_at_open(Reader& r) {
    bool freed = false;
    for (size_t i = 0; i < r.open.size();) {
      Open& entry = r.open[i];
      if (!entry.written && entry.op->end.load(std::memory_order_acquire)) {
        std::string& out = files.ops.out();
        size_t begin = out.size();
        fixed_part(r, entry.op, out);
        out += entry.fields;
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

  void fixed_part(Reader& r, Op* op, std::string& out) {
    int64_t start = clock_.ns(op->start), end = clock_.ns(op->end.load(std::memory_order_relaxed));
    put<uint16_t>(out, 1);
    put<uint32_t>(out, 0);
    put<int64_t>(out, start);
    put<int64_t>(out, std::max(start, end));
    put<int64_t>(out, op->sequence);
    put<uint64_t>(out, process_);
    put<uint64_t>(out, r.thread);
    put<uint64_t>(out, op->end_thread);
    put<uint64_t>(out, op->forward_thread);
    put<uint8_t>(out, op->head().scope);
    put<uint8_t>(out, op->head().flags & kAsync);
  }

  void finish_op(Reader& r, std::string& out, size_t begin) {
    uint32_t length = static_cast<uint32_t>(out.size() - begin - 6);
    memcpy(&out[begin + 2], &length, 4);
    files.ops.records++;
    r.ops++;
    files.ops.flush_if_large();
  }

  void fields(Reader& r, Op* op, std::string& out) {
    Head& head = op->head();
    const char* extra = reinterpret_cast<char*>(op) + sizeof(Op);
    size_t words = head.words;
    bool inside = head.flags & kNameInside;
    const char* name = inside ? extra : r.names[op->name].data();
    size_t length = inside ? op->name : r.names[op->name].size();
    put<uint16_t>(out, 2);
    put_text(out, name, length);
    if (inside) {
      extra += padded(length);
      words -= padded(length) / 8;
    }
    if (op->inputs == Texts::kNone)
      return;
    const InputTexts& in = *r.inputs[op->inputs];
    if (options_ & kShapes) {
      out += in.fields;
      if (in.named)
        in.put_tensors(out, reinterpret_cast<const uint64_t*>(extra), words);
    }
    if ((options_ & kFlops) && !inside)
      put_flops(r, op, in, out);
  }

  void put_flops(Reader& r, Op* op, const InputTexts& in, std::string& out) {
    auto [known, fresh] = r.flops.try_emplace(uint64_t{op->name} << 32 | op->inputs, 0);
    if (fresh)
      known->second = flops_of(r.names[op->name], in);
    if (known->second)
      put_field(out, 10, std::to_string(known->second));
  }

  // Names come from anywhere; the files promise UTF-8.
  static void put_text(std::string& out, const char* text, size_t length) {
    put<uint32_t>(out, static_cast<uint32_t>(length));
    size_t begin = out.size();
    out.append(text, length);
    for (size_t i = begin; i < out.size(); i++)
      if (static_cast<unsigned char>(out[i]) >= 0x80) {
        clean(out, i);
        return;
      }
  }

  static void clean(std::string& text, size_t i) {
    while (i < text.size()) {
      unsigned char c = static_cast<unsigned char>(text[i]);
      size_t more = c < 0x80 ? 0 : c >= 0xC2 && c < 0xE0 ? 1 : c >= 0xE0 && c < 0xF0 ? 2 : c >= 0xF0 && c < 0xF5 ? 3 : 9;
      bool good = more < 9 && i + more < text.size();
      for (size_t k = 1; good && k <= more; k++) {
        unsigned char next = static_cast<unsigned char>(text[i + k]);
        unsigned char low = k > 1 ? 0x80 : c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80;
        unsigned char high = k > 1 ? 0xBF : c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
        good = next >= low && next <= high;
      }
      if (!good) {
        text[i] = '?';
        more = 0;
      }
      i += more + 1;
    }
  }

  // ---- the other records

  void memory_event(Reader& r, const MemoryEvent& event) {
    std::string& out = files.memory.out();
    put<uint16_t>(out, 3);
    put<uint32_t>(out, 77);
    put<uint64_t>(out, event.address);
    put<int64_t>(out, clock_.ns(event.time));
    put<int64_t>(out, event.size);
    put<uint64_t>(out, event.allocated);
    put<uint64_t>(out, event.reserved);
    put<int64_t>(out, event.head.scope ? static_cast<int64_t>(event.allocated) : 0);
    put<int64_t>(out, 0);
    put<uint8_t>(out, event.head.scope);
    put<uint8_t>(out, event.head.flags);
    put<uint8_t>(out, 0);
    put<uint8_t>(out, event.size < 0);
    put<uint8_t>(out, 0);
    put<uint64_t>(out, r.thread);
    put<uint64_t>(out, process_);
    files.memory.records++;
    files.memory.flush_if_large();
  }

  void mark_event(Reader& r, const MarkEvent& mark, const char* name) {
    std::string& out = files.marks.out();
    put<uint16_t>(out, 2);
    put<uint32_t>(out, static_cast<uint32_t>(46 + mark.length));
    put<int64_t>(out, clock_.ns(mark.time));
    put<uint64_t>(out, mark.head.scope);
    put<uint64_t>(out, mark.correlation);
    put<uint64_t>(out, r.thread);
    put<uint64_t>(out, process_);
    put<uint16_t>(out, 1);
    put_text(out, name, mark.length);
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
    for (; !r.calls.empty(); r.calls.pop_back()) put_call(r, time, kExitKey, r.calls.back() ? 3 : 1);
  }

  void put_call(Reader& r, uint64_t time, uint64_t key, uint8_t tag) {
    std::string& out = files.calls.out();
    put<uint64_t>(out, static_cast<uint64_t>(clock_.ns(time)));
    put<uint64_t>(out, r.thread);
    put<uint64_t>(out, process_);
    put<uint64_t>(out, key);
    put<uint8_t>(out, tag);
    files.calls.records++;
    files.calls.flush_if_large();
  }

  void write_callees() {
    std::string& out = files.callees.out();
    std::lock_guard<std::mutex> lock(callees_.mutex);
    if (!callees_written_ && !callees_.texts.empty())
      put_callee(out, kExitKey, kExitText);
    for (; callees_written_ < callees_.texts.size(); callees_written_++)
      put_callee(out, callees_written_, callees_.texts[callees_written_]);
  }

  void put_callee(std::string& out, uint64_t key, const std::string& text) {
    put<uint16_t>(out, 4);
    put<uint32_t>(out, static_cast<uint32_t>(14 + text.size()));
    put<uint64_t>(out, key);
    put<uint16_t>(out, 1);
    put_text(out, text.data(), text.size());
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
      for (Op* op : zombies_[i].ops) held |= !op->head().gone.load(std::memory_order_acquire);
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
  uint32_t options_ = 0;
  uint64_t process_ = 0;
  std::vector<std::unique_ptr<Reader>> readers_;
  std::vector<Zombie> zombies_;
  size_t callees_written_ = 0;
};

}  // namespace observer
