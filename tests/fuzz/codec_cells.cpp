// SPDX-License-Identifier: Apache-2.0
// Feeds the reader of csv lines with damaged ones under sanitizers: `run_codec.py` compiles it together with
// native/codec/cells.cpp. What the kernel finds is held against a plain walk.
//
//   codec_cells INPUTS SEED
//
// Every input is a heap block of exactly its size, so that a read beyond its end is found.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

// As in native/codec/cells.cpp.
struct Column {
  int32_t index, kind;
  void* values;
  uint8_t* present;
  int64_t* texts;
  int64_t count, missing;
};

extern "C" {
int64_t cell_column_size();
int64_t read_lines(const uint8_t*, int64_t, int32_t, Column*, int32_t, int64_t);
}

static std::mt19937_64 chance;

static void must(bool holds, const char* what) {
  if (holds)
    return;
  fprintf(stderr, "not as in the plain walk: %s\n", what);
  abort();
}

static std::string some_cell() {
  static const char* const CELLS[] = {"",
                                      "N/A",
                                      "0",
                                      "-3",
                                      "5.250\t",
                                      "1736408883500139.304",
                                      "0.013",
                                      "add",
                                      "\"a,b\"",
                                      "\"\"\"2;3\"\"\"",
                                      "9007199254740993",
                                      "123456789012345678",
                                      "-0.0",
                                      "1.",
                                      "1e5",
                                      "\xc3\xa9",
                                      "\"x",
                                      "name with blanks"};
  return CELLS[chance() % (sizeof CELLS / sizeof *CELLS - (chance() % 4 ? 5 : 0))];
}

// The cells of the lines, or nothing where there is a quote that does not stand around a whole cell.
static std::vector<std::vector<std::string>> walk(const std::string& data, bool& plain) {
  std::vector<std::vector<std::string>> lines;
  plain = true;
  for (size_t at = 0; at < data.size();) {
    lines.emplace_back();
    for (bool more = true; more;) {
      size_t begin = at;
      bool inside = false;
      for (; at < data.size() && (inside || (data[at] != ',' && data[at] != '\n')); at++) {
        inside ^= data[at] == '"';
        plain = plain && (static_cast<uint8_t>(data[at]) >= 32 || data[at] == '\t');
      }
      std::string cell = data.substr(begin, at - begin);
      plain = plain && !inside &&
              (cell.find('"') == std::string::npos || (cell[0] == '"' && cell.back() == '"' && cell.size() > 1));
      lines.back().push_back(cell);
      more = at < data.size() && data[at] == ',';
      at++;
    }
  }
  return lines;
}

// Whether the kernel read them.
static bool once() {
  const int32_t width = 1 + chance() % 5;
  std::string bytes;
  for (uint64_t left = chance() % 8; left-- > 0;)
    for (int32_t cell = 0; cell < width; cell++)
      bytes += some_cell() + (cell + 1 < width ? "," : left || chance() % 2 ? "\n" : "");
  for (uint64_t times = chance() % 3; times-- > 0 && !bytes.empty();) {
    size_t at = chance() % bytes.size();
    switch (chance() % 4) {
      case 0: bytes[at] = static_cast<char>(chance()); break;
      case 1: bytes.erase(at, 1 + chance() % 3); break;
      case 2: bytes.insert(at, some_cell()); break;
      default: bytes.resize(at); break;
    }
  }
  std::unique_ptr<uint8_t[]> data(new uint8_t[bytes.size()]);
  memcpy(data.get(), bytes.data(), bytes.size());
  bool plain;
  auto lines = walk(bytes, plain);
  int64_t most = chance() % 8 ? lines.size() : chance() % 4;
  std::vector<std::unique_ptr<uint8_t[]>> memory;
  std::vector<Column> columns;
  for (int32_t index = 0; index < width; index++) {
    if (chance() % 4 == 0)
      continue;
    int32_t kind = chance() % 4;
    uint8_t* blocks[3];
    for (int64_t size : {most * (kind ? 8 : 4), most, kind ? 0 : 16 * most}) {
      memory.emplace_back(new uint8_t[size]);
      blocks[memory.size() % 3 ? memory.size() % 3 - 1 : 2] = memory.back().get();
    }
    columns.push_back({index, kind, blocks[0], blocks[1], reinterpret_cast<int64_t*>(blocks[2]), 0, 0});
  }
  if (chance() % 64 == 0 && !columns.empty())
    columns[chance() % columns.size()].index = static_cast<int32_t>(chance() % 9) - 2;
  int64_t rows = read_lines(data.get(), bytes.size(), width, columns.data(), columns.size(), most);
  if (rows < 0)
    return false;
  must(rows == static_cast<int64_t>(lines.size()) && plain, "the number of lines");
  for (const Column& column : columns) {
    int64_t missing = 0;
    for (int64_t row = 0; row < rows; row++) {
      must(static_cast<int64_t>(lines[row].size()) == width, "the cells of a line");
      std::string cell = lines[row][column.index];
      bool absent = cell.empty() || cell == "N/A";
      missing += absent;
      must(column.present[row] == !absent, "whether there is a value");
      if (absent)
        continue;
      if (column.kind == 0) {
        uint32_t code = static_cast<uint32_t*>(column.values)[row];
        must(code < column.count, "the number of a text");
        must(bytes.substr(column.texts[2 * code], column.texts[2 * code + 1]) == cell, "a text");
      } else if (column.kind == 1) {
        must(static_cast<int64_t*>(column.values)[row] == strtoll(cell.c_str(), nullptr, 10), "a whole number");
      } else if (column.kind == 2) {
        must(static_cast<double*>(column.values)[row] == strtod(cell.c_str(), nullptr), "a number");
      } else {
        size_t point = cell.find('.');
        std::string digits = point == std::string::npos ? "" : cell.substr(point + 1);
        digits = (digits.substr(0, digits.find_first_not_of("0123456789")) + "000").substr(0, 3);
        must(static_cast<int64_t*>(column.values)[row] == 1000 * strtoll(cell.c_str(), nullptr, 10) + atoi(digits.c_str()),
             "a time");
      }
    }
    must(column.missing == missing, "how many values there are");
    for (int64_t text = 0; text < column.count; text++)
      for (int64_t other = 0; other < text; other++)
        must(bytes.substr(column.texts[2 * text], column.texts[2 * text + 1]) !=
                 bytes.substr(column.texts[2 * other], column.texts[2 * other + 1]),
             "one text twice");
  }
  return true;
}

int main(int count, char** words) {
  if (count != 3 || cell_column_size() != sizeof(Column))
    return 2;
  chance.seed(strtoul(words[2], nullptr, 10));
  uint64_t inputs = strtoul(words[1], nullptr, 10);
  unsigned long long read = 0;
  for (uint64_t done = 0; done < inputs; done++)
    read += once();
  must(inputs < 1000 || read > inputs / 10, "too few inputs are good enough to be read");
  printf("%llu inputs of the reader of lines, %llu read as in a plain walk, the others left to the general parser\n",
         static_cast<unsigned long long>(inputs), read);
  return 0;
}
