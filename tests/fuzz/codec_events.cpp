// SPDX-License-Identifier: Apache-2.0
// Feeds the reader of events with damaged JSON under sanitizers: `run_codec.py` compiles it together with native/codec/events.cpp.
//
//   codec_events INPUTS SEED FILE...        INPUTS random damages of pieces of the files
//   codec_events truncate STEP FILE...      each file cut at every STEP-th byte
//
// Every input is a heap block of exactly its size, so that a read beyond its end is found.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <utility>
#include <vector>

extern "C" {
int64_t event_column_size();
int64_t keys_size();
void clear_keys(void*);
int32_t add_key(void*, const char*, int64_t, int32_t);
int64_t read_events(const char*, int64_t, const void*, const void*, void*, int64_t, int32_t, char**, int64_t*);
int64_t most_events(const char*, int64_t);
void release(void*);
}

// As in native/codec/events.cpp.
struct Column {
  int32_t kind, other, uses_source, uses_decoded;
  void* values;
  uint8_t* present;
  int64_t count, last_row;
};

static const char* const FIELDS[] = {"ph", "name", "cat", "id", "bp", "s", "pid", "tid", "ts", "dur"};
static const int32_t FIELD_KINDS[] = {0, 0, 0, 0, 0, 0, 6, 6, 4, 5};
static const char* const ARGS[] = {"External id", "Input Dims", "Thread Id", "connection_id",
                                   "size(Byte)",  "is",         "Model Id",  "Input type"};
static const int32_t ARG_KINDS[] = {1, 0, 1, 1, 2, 3, 1, 0};
constexpr int TEXTS = 2, COLUMNS = 10 + TEXTS + 8;

struct Totals {
  uint64_t inputs = 0, fit = 0, sum = 0;
};

static void feed(const std::string& text, const void* fields, const void* args, bool by_lines, Totals& totals) {
  char* exact = static_cast<char*>(malloc(text.size() ? text.size() : 1));
  memcpy(exact, text.data(), text.size());
  Column columns[COLUMNS] = {};
  for (int at = 0; at < COLUMNS; at++) {
    columns[at].last_row = -1;
    columns[at].kind = at < 10 ? FIELD_KINDS[at] : at < 10 + TEXTS ? 0 : ARG_KINDS[at - 10 - TEXTS];
    columns[at].other = at == 6 ? 10 : at == 7 ? 11 : 0;
  }
  char* decoded = nullptr;
  int64_t size = 0;
  int64_t most = most_events(exact, text.size());
  int64_t rows = read_events(exact, text.size(), fields, args, columns, most, by_lines, &decoded, &size);
  totals.inputs++;
  totals.fit += rows > 0;
  for (Column& column : columns) {
    // What a reader of the columns touches: all values of the rows, and the texts that views point to.
    for (int64_t row = 0; row < rows && column.values; row++) {
      if (!column.present[row])
        continue;
      if (column.kind == 0) {
        const uint8_t* view = static_cast<const uint8_t*>(column.values) + 16 * row;
        uint32_t length, place[2];
        memcpy(&length, view, 4);
        memcpy(place, view + 8, 8);
        const char* from = length <= 12 ? reinterpret_cast<const char*>(view) + 4 : (place[0] ? decoded : exact) + place[1];
        if (length > 12 && place[0] && static_cast<int64_t>(place[1]) + length > size)
          abort();
        for (uint32_t i = 0; i < length; i++)
          totals.sum += from[i];
      } else {
        uint64_t value = 0;
        memcpy(&value, static_cast<char*>(column.values) + row * (column.kind == 3 ? 1 : 8), column.kind == 3 ? 1 : 8);
        totals.sum += value;
      }
    }
    release(column.values);
    release(column.present);
  }
  release(decoded);
  free(exact);
}

static std::string damaged(std::string text, std::mt19937_64& random) {
  static const char* const PIECES[] = {
      "\"", "\\", "{",    "}",      "[",    "]",       ",",           ":",        "\\u12",     "\\ud83d\\ude00",       "\n",
      "-",  ".",  "1e99", "null",   "true", "\\u00e9", "\x01",        "\xc3\xa9", "\"args\":", "99999999999999999999", " ",
      "0",  "[[", "]]",   "{\"a\"", "1.50", "-0",      "0.0000000005"};
  for (uint64_t times = random() % 4; times-- > 0;) {
    size_t at = text.empty() ? 0 : random() % text.size();
    switch (random() % 5) {
      case 0: text.insert(at, PIECES[random() % (sizeof PIECES / sizeof *PIECES)]); break;
      case 1: text.erase(at, 1 + random() % 8); break;
      case 2:
        if (!text.empty())
          text[at] = static_cast<char>(random());
        break;
      case 3: text.resize(at); break;
      default: text.insert(at, text.substr(text.empty() ? 0 : random() % text.size(), random() % 64)); break;
    }
  }
  return text;
}

// Where the events of a list begin and end.
static std::vector<std::pair<size_t, size_t>> events(const std::string& text) {
  std::vector<std::pair<size_t, size_t>> found;
  int depth = 0;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); at++) {
    if (text[at] == '"') {
      while (++at < text.size() && text[at] != '"')
        at += text[at] == '\\';
    } else if (text[at] == '{' || text[at] == '[') {
      if (!depth++)
        begin = at;
    } else if (text[at] == '}' || text[at] == ']') {
      if (!--depth)
        found.emplace_back(begin, at + 1);
      if (depth < 0)
        break;
    }
  }
  return found;
}

int main(int count, char** words) {
  if (count < 4)
    return 2;
  std::vector<std::string> files;
  for (int at = 3; at < count; at++) {
    std::ifstream file(words[at], std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(file)), {});
    size_t begin = text.find("traceEvents");
    begin = text.find('[', begin == std::string::npos ? 0 : begin);
    files.push_back(begin == std::string::npos ? text : text.substr(begin + 1));
  }
  std::string fields(keys_size(), '\0'), args(keys_size(), '\0');
  clear_keys(&fields[0]);
  clear_keys(&args[0]);
  for (int at = 0; at < 10; at++)
    add_key(&fields[0], FIELDS[at], strlen(FIELDS[at]), at);
  for (int at = 0; at < 8; at++)
    add_key(&args[0], ARGS[at], strlen(ARGS[at]), 10 + TEXTS + at);
  Totals totals;
  std::vector<std::vector<std::pair<size_t, size_t>>> spans;
  for (const std::string& text : files)
    spans.push_back(events(text));
  if (!strcmp(words[1], "truncate")) {
    for (size_t at = 0; at < files.size(); at++) {
      size_t event = 0;
      for (size_t cut = 0; cut <= files[at].size(); cut += strtoul(words[2], nullptr, 10)) {
        // From some events before the cut: all before it was read for the cut before.
        while (event + 1 < spans[at].size() && spans[at][event].first + 20000 < cut)
          event++;
        size_t begin = event < spans[at].size() && spans[at][event].first < cut ? spans[at][event].first : 0;
        feed(files[at].substr(begin, cut - begin), fields.data(), args.data(), false, totals);
      }
      if (!spans[at].empty())
        feed(files[at].substr(0, spans[at].back().second), fields.data(), args.data(), false, totals);
    }
  } else {
    std::mt19937_64 random(strtoul(words[2], nullptr, 10));
    for (uint64_t left = strtoul(words[1], nullptr, 10); left-- > 0;) {
      size_t at = random() % files.size();
      if (spans[at].empty())
        return 2;
      bool by_lines = random() % 4 == 0;
      std::string piece;
      size_t first = random() % spans[at].size();
      for (size_t event = first; event <= first + random() % 4 && event < spans[at].size(); event++)
        piece += (piece.empty() ? ""
                  : by_lines    ? "\n"
                                : ", ") +
                 files[at].substr(spans[at][event].first, spans[at][event].second - spans[at][event].first);
      feed(damaged(piece, random), fields.data(), args.data(), by_lines, totals);
    }
  }
  printf("%llu inputs, %llu read, sum %llu\n", (unsigned long long)totals.inputs, (unsigned long long)totals.fit,
         (unsigned long long)totals.sum);
  return 0;
}
