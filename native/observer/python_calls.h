// SPDX-License-Identifier: Apache-2.0
// Python and C calls by a profile function set through the C API of whatever Python runs in this process.
//
// No Python headers: functions are found by name, so one binary serves every Python. All of this runs under the GIL.
#pragma once
#include <dlfcn.h>

#include "session.h"

namespace observer {

using Object = void;
using ProfileFunction = int (*)(Object*, Object*, int, Object*);

struct PythonApi {
  void (*set_profile)(ProfileFunction, Object*);
  void (*set_profile_all)(ProfileFunction, Object*);  // from 3.12 on
  Object* (*current_frame)();
  Object* (*frame_code)(Object*);
  Object* (*frame_back)(Object*);
  int (*frame_line)(Object*);
  Object* (*frame_variable)(Object*, const char*);  // from 3.12 on
  Object* (*frame_locals)(Object*);                 // from 3.11 on
  Object* (*dict_item)(Object*, const char*);
  Object* (*attribute)(Object*, const char*);
  Object* (*repr)(Object*);
  Object* (*type)(Object*);
  Object* (*weak_reference)(Object*, Object*);
  const char* (*utf8)(Object*, ssize_t*);
  long (*as_long)(Object*);
  void* (*c_function)(Object*);
  void (*retain)(Object*);
  void (*release)(Object*);
  void (*clear_error)();
  size_t head_size;  // of every object; what is particular to its type comes behind

  bool find() {
    auto load = [](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(RTLD_DEFAULT, name));
      return function != nullptr;
    };
    load(set_profile_all, "PyEval_SetProfileAllThreads");
    load(frame_variable, "PyFrame_GetVarString");
    load(frame_locals, "PyFrame_GetLocals");
    Object* base = dlsym(RTLD_DEFAULT, "PyBaseObject_Type");
    return base &&
           load(set_profile, "PyEval_SetProfile") & load(current_frame, "PyEval_GetFrame") & load(frame_code, "PyFrame_GetCode") &
               load(frame_back, "PyFrame_GetBack") & load(frame_line, "PyFrame_GetLineNumber") &
               load(dict_item, "PyDict_GetItemString") & load(attribute, "PyObject_GetAttrString") & load(repr, "PyObject_Repr") &
               load(type, "PyObject_Type") & load(weak_reference, "PyWeakref_NewRef") & load(utf8, "PyUnicode_AsUTF8AndSize") &
               load(as_long, "PyLong_AsLong") & load(c_function, "PyCFunction_GetFunction") & load(retain, "Py_IncRef") &
               load(release, "Py_DecRef") & load(clear_error, "PyErr_Clear") &&
           find_head_size(base);
  }

  bool find_head_size(Object* base) {
    Object* size = attribute(base, "__basicsize__");
    if (!size)
      return clear_error(), false;
    head_size = static_cast<size_t>(as_long(size));
    release(size);
    return true;
  }

  // What is the same for all C functions that are one function to their user: their definition. Functions of pybind11
  // share one C function, and methods of many objects share one definition.
  const void* c_definition(Object* callee) {
    void* function = c_function(callee);
    if (!function) {
      clear_error();
      return nullptr;
    }
    void** definition = *reinterpret_cast<void***>(static_cast<char*>(callee) + head_size);
    return definition && definition[1] == function ? definition : function;
  }
};

inline PythonApi python;

// Numbers for callees, by the address of what is called. Callees that are kept alive keep their address.
class CalleeTable {
 public:
  struct Entry {
    const void* key = nullptr;
    const void* type = nullptr;
    uint32_t number = 0;
  };

  Entry* find(const void* key) {
    for (size_t i = slot(key);; i = (i + 1) & mask_) {
      if (entries_[i].key == key)
        return &entries_[i];
      if (!entries_[i].key)
        return nullptr;
    }
  }

  void put(const Entry& entry) {
    if (++count_ * 2 > entries_.size()) {
      std::vector<Entry> old = std::move(entries_);
      entries_.assign(old.size() * 2, Entry{});
      mask_ = entries_.size() - 1;
      for (const Entry& e : old)
        if (e.key)
          place(e);
    }
    place(entry);
  }

  void clear() {
    entries_.assign(4096, Entry{});
    mask_ = 4095;
    count_ = 0;
  }

 private:
  size_t slot(const void* key) const {
    return (reinterpret_cast<uintptr_t>(key) >> 4) * 0x9E3779B97F4A7C15ull >> 32 & mask_;
  }
  void place(const Entry& entry) {
    size_t i = slot(entry.key);
    while (entries_[i].key)
      i = (i + 1) & mask_;
    entries_[i] = entry;
  }
  std::vector<Entry> entries_ = std::vector<Entry>(4096);
  size_t mask_ = 4095, count_ = 0;
};

struct Instance {  // a module or optimizer whose parameters are of interest
  uint32_t number;
  bool optimizer;
  Object* reference;
};

struct PythonCalls {
  CalleeTable callees;
  std::vector<Object*> kept;
  std::vector<Instance> instances;
  std::vector<std::string> prefixes;
  const void* module_code = nullptr;
  const void* optimizer_code = nullptr;
  bool wants_instances = false;
};

inline PythonCalls calls;

inline std::string text_of(Object* object) {
  ssize_t length = 0;
  const char* text = object ? python.utf8(object, &length) : nullptr;
  std::string copy = text ? std::string(text, static_cast<size_t>(length)) : std::string("?");
  if (!text)
    python.clear_error();
  if (object)
    python.release(object);
  return copy;
}

inline std::string attribute_text(Object* object, const char* name) {
  Object* value = python.attribute(object, name);
  if (!value)
    python.clear_error();
  return text_of(value);
}

inline uint32_t new_callee(std::string text) {
  Callees& all = session().callees;
  std::lock_guard<std::mutex> lock(all.mutex);
  all.texts.push_back(std::move(text));
  return static_cast<uint32_t>(all.texts.size() - 1);
}

inline std::string function_text(Object* code, int line) {
  std::string file = attribute_text(code, "co_filename");
  for (const std::string& prefix : calls.prefixes)
    if (file.size() > prefix.size() && !file.compare(0, prefix.size(), prefix)) {
      file.erase(0, prefix.size());
      break;
    }
  if (line < 0) {
    Object* first = python.attribute(code, "co_firstlineno");
    line = first ? static_cast<int>(python.as_long(first)) : 0;
    if (first)
      python.release(first);
  }
  return file + "(" + std::to_string(line) + "): " + attribute_text(code, "co_name");
}

inline uint32_t function_number(Object* code) {
  if (auto* known = calls.callees.find(code))
    return known->number;
  uint32_t number = new_callee(function_text(code, -1));
  python.retain(code);
  calls.kept.push_back(code);
  calls.callees.put({code, nullptr, number});
  return number;
}

inline uint32_t c_function_number(Object* callee) {
  const void* function = python.c_definition(callee);
  if (!function)
    function = callee;
  if (auto* known = calls.callees.find(function))
    return known->number;
  Object* text = python.repr(callee);
  if (!text)
    python.clear_error();
  uint32_t number = new_callee(text_of(text));
  if (function == callee) {
    python.retain(callee);
    calls.kept.push_back(callee);
  }
  calls.callees.put({function, nullptr, number});
  return number;
}

inline Object* frame_self(Object* frame) {  // new reference
  Object* self = nullptr;
  if (python.frame_variable) {
    self = python.frame_variable(frame, "self");
  } else if (Object* locals = python.frame_locals ? python.frame_locals(frame) : python.attribute(frame, "f_locals")) {
    self = python.dict_item(locals, "self");
    if (self)
      python.retain(self);
    python.release(locals);
  }
  if (!self)
    python.clear_error();
  return self;
}

// The number of the module or optimizer that is `self` in this frame.
inline uint32_t instance_number(Object* frame, Object* code, bool optimizer) {
  Object* self = frame_self(frame);
  if (!self)
    return function_number(code);
  Object* type = python.type(self);
  auto* known = calls.callees.find(self);
  uint32_t number;
  if (known && known->type == type) {
    number = known->number;
  } else {
    std::string text = optimizer ? function_text(code, -1)
                                 : attribute_text(type, "__name__") + "######" + std::to_string(reinterpret_cast<uintptr_t>(self));
    number = new_callee(std::move(text));
    if (known)
      *known = {self, type, number};  // another object at the address of one that is gone
    else
      calls.callees.put({self, type, number});
    if (calls.wants_instances) {
      Object* reference = python.weak_reference(self, nullptr);
      if (reference)
        calls.instances.push_back({number, optimizer, reference});
      else
        python.clear_error();
    }
  }
  python.release(type);
  python.release(self);
  return number;
}

inline uint32_t callee_number(Object* frame, Object* code) {
  if (__builtin_expect(code == calls.module_code, 0))
    return instance_number(frame, code, false);
  if (__builtin_expect(code == calls.optimizer_code, 0))
    return instance_number(frame, code, true);
  return function_number(code);
}

OBSERVER_HOT void record_call(Kind kind, uint32_t number) {
  Stream* stream = current_stream();
  if (!stream)
    return;
  Busy busy(stream);
  if (!busy.recording)
    return;
  uint64_t now = tick();
  while (__builtin_expect(stream->owed_returns, 0)) {
    if (!stream->call_event(Kind::Return, 0, now))
      break;
    stream->owed_returns--;
  }
  if (stream->owed_returns || !stream->call_event(kind, number, now))
    stream->skipped_calls++;
}

OBSERVER_HOT void record_return(Kind kind) {
  Stream* stream = current_stream();
  if (!stream)
    return;
  Busy busy(stream);
  if (!busy.recording)
    return;
  if (__builtin_expect(stream->skipped_calls, 0))
    stream->skipped_calls--;
  else if (stream->owed_returns || !stream->call_event(kind, 0, tick()))
    stream->owed_returns++;
}

inline int profile(Object*, Object* frame, int what, Object* argument) {
  constexpr int kCall = 0, kReturn = 3, kCCall = 4, kCException = 5, kCReturn = 6;
  if (__builtin_expect(!session().recording.load(std::memory_order_relaxed), 0)) {
    python.set_profile(nullptr, nullptr);  // a forked child, or a capture that reached its limit
    return 0;
  }
  // Numbers are found before the stream is marked as busy: finding them may run Python code, which may stop the session.
  switch (what) {
    case kCall: {
      Object* code = python.frame_code(frame);
      uint32_t number = callee_number(frame, code);
      python.release(code);
      record_call(Kind::Call, number);
      break;
    }
    case kCCall: record_call(Kind::CCall, c_function_number(argument)); break;
    case kReturn: record_return(Kind::Return); break;
    case kCReturn:
    case kCException: record_return(Kind::CReturn); break;
  }
  return 0;
}

// The calls that are open on this thread when its recording begins, outermost first, at the line where they are;
// without the innermost `skip`.
inline void record_open_calls(int skip) {
  std::vector<Object*> frames;
  Object* frame = python.current_frame();
  if (frame)
    python.retain(frame);
  while (frame) {
    frames.push_back(frame);
    frame = python.frame_back(frame);
  }
  for (; skip > 0 && !frames.empty(); skip--) {
    python.release(frames.front());
    frames.erase(frames.begin());
  }
  for (size_t i = frames.size(); i-- > 0;) {
    Object* code = python.frame_code(frames[i]);
    bool instance = code == calls.module_code || code == calls.optimizer_code;
    uint32_t number = instance ? callee_number(frames[i], code) : new_callee(function_text(code, python.frame_line(frames[i])));
    python.release(code);
    record_call(Kind::Call, number);
    python.release(frames[i]);
  }
}

inline void forget_callees() {
  for (Object* object : calls.kept)
    python.release(object);
  calls.kept.clear();
  for (const Instance& instance : calls.instances)
    python.release(instance.reference);
  calls.instances.clear();
  calls.callees.clear();
}

}  // namespace observer
