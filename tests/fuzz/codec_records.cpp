// SPDX-License-Identifier: Apache-2.0
// Feeds the reader of framework records with damaged ones under sanitizers: `run_codec.py` compiles it together with
// native/codec/records.cpp. What the kernel finds is held against a plain walk.
//
//   codec_records INPUTS SEED
//
// Every input is a heap block of exactly its size, so that a read beyond its end is found.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

// As in native/codec/records.cpp.
struct Number {
  int32_t offset, width;
  void* values;
};
struct Text {
  int32_t field, first_place;
  uint8_t *views, *present;
  int64_t met, shown;
};

extern "C" {
int64_t number_size();
int64_t text_size();
int64_t find_records(const uint8_t*, int64_t, int64_t*, int64_t);
int64_t read_records(const uint8_t*, int64_t, const int64_t*, const int64_t*, int64_t, int64_t, int64_t, const Number*, int32_t,
                     Text*, int32_t, uint8_t*);
}

static std::mt19937_64 chance;

static void must(bool holds, const char* what) {
  if (holds)
    return;
  fprintf(stderr, "not as in the plain walk: %s\n", what);
  abort();
}

static std::string number(uint64_t value, int bytes) {
  return std::string(reinterpret_cast<const char*>(&value), bytes);
}

static std::string some_records(int64_t fixed) {
  std::string data;
  for (uint64_t left = chance() % 6; left-- > 0;) {
    std::string body(chance() % 16 ? fixed : chance() % (fixed + 1), '\0');
    for (char& byte : body)
      byte = static_cast<char>(chance());
    for (uint64_t field = chance() % 5; field-- > 0;) {
      std::string text(chance() % (chance() % 4 ? 20 : 60), 'a' + chance() % 26);
      body += number(chance() % 6, 2) + number(text.size(), 4) + text;
    }
    data += number(1, 2) + number(body.size(), 4) + body;
  }
  for (uint64_t times = chance() % 4; times-- > 0 && !data.empty();) {
    size_t at = chance() % data.size();
    switch (chance() % 4) {
      case 0: data[at] = static_cast<char>(chance()); break;
      case 1: data.erase(at, 1 + chance() % 8); break;
      case 2: data.insert(at, data.substr(chance() % data.size(), chance() % 20)); break;
      default: data.resize(at); break;
    }
  }
  return data;
}

static void once() {
  const int64_t fixed = 1 + chance() % 24;
  std::string bytes = some_records(fixed);
  std::unique_ptr<uint8_t[]> data(new uint8_t[bytes.size()]);
  memcpy(data.get(), bytes.data(), bytes.size());
  int64_t size = bytes.size(), most = chance() % 8;
  std::unique_ptr<int64_t[]> starts(new int64_t[most]);
  int64_t found = find_records(data.get(), size, starts.get(), most);
  std::vector<int64_t> begins, lengths;
  int64_t at = 0, count = 0;
  while (at + 6 <= size) {
    uint32_t length;
    memcpy(&length, bytes.data() + at + 2, 4);
    if (at + 6 + static_cast<int64_t>(length) > size)
      break;
    if (found >= 0)
      must(starts[count] == at, "a start");
    if (length >= fixed) {
      begins.push_back(at + 6);
      lengths.push_back(length);
    }
    at += 6 + static_cast<int64_t>(length);
    count++;
  }
  must(found == (count > most ? -1 : count), "the number of records");
  if (chance() % 16 == 0 && !begins.empty()) {  // places that no file may lead to
    size_t which = chance() % begins.size();
    (chance() % 2 ? begins : lengths)[which] += static_cast<int64_t>(chance() % 2 ? chance() : chance() % 100) - 50;
  }
  bool inside = true;
  for (size_t row = 0; row < begins.size(); row++)
    inside = inside && begins[row] >= 0 && begins[row] <= size && lengths[row] >= fixed && lengths[row] <= size - begins[row];
  int64_t rows = begins.size();
  std::unique_ptr<uint64_t[]> wide(new uint64_t[rows]);
  std::unique_ptr<uint8_t[]> narrow(new uint8_t[rows]), torn(new uint8_t[rows]);
  std::vector<Number> numbers = {{static_cast<int32_t>(chance() % fixed), 1, narrow.get()}};
  if (fixed >= 8)
    numbers.push_back({static_cast<int32_t>(chance() % (fixed - 7)), 8, wide.get()});
  if (chance() % 32 == 0) {
    numbers[0].offset = static_cast<int32_t>(chance());
    inside = inside && numbers[0].offset >= 0 && numbers[0].offset < fixed;
  }
  std::vector<std::unique_ptr<uint8_t[]>> memory;
  std::vector<Text> texts;
  for (int32_t field = 1; field <= 3; field++) {
    memory.emplace_back(new uint8_t[16 * rows]());
    uint8_t* views = memory.back().get();
    memory.emplace_back(new uint8_t[rows]());
    texts.push_back({field, -1, views, memory.back().get(), 0, 0});
  }
  int64_t read = read_records(data.get(), size, begins.data(), lengths.data(), 0, rows, fixed, numbers.data(),
                              static_cast<int32_t>(numbers.size()), texts.data(), 3, torn.get());
  must(read == (inside ? rows : -1), "whether all records are inside");
  std::vector<int64_t> met(4);
  for (int64_t row = 0; inside && row < rows; row++) {
    const char* payload = bytes.data() + begins[row];
    must(narrow[row] == static_cast<uint8_t>(payload[numbers[0].offset]), "a byte");
    must(numbers.size() < 2 || !memcmp(&wide[row], payload + numbers[1].offset, 8), "a number");
    std::map<int32_t, std::string> wanted;
    int64_t place = fixed;
    bool cut = false;
    while (!cut && place < lengths[row]) {
      uint16_t field = 0;
      uint32_t length = 0;
      cut = lengths[row] - place < 6;
      if (!cut) {
        memcpy(&field, payload + place, 2);
        memcpy(&length, payload + place + 2, 4);
        cut = length > lengths[row] - place - 6;
      }
      if (!cut)
        wanted[field] = std::string(payload + place + 6, length);
      place += 6 + static_cast<int64_t>(length);
    }
    must(torn[row] == cut, "a cut record");
    for (const Text& text : texts) {
      auto one = wanted.find(text.field);
      must(text.present[row] == (one != wanted.end()), "whether there is a text");
      met[text.field] += one != wanted.end();
      if (one == wanted.end())
        continue;
      uint32_t parts[4];
      memcpy(parts, text.views + 16 * row, 16);
      must(parts[0] == one->second.size(), "the length of a text");
      const char* from = parts[0] <= 12 ? reinterpret_cast<const char*>(parts + 1) : bytes.data() + parts[3];
      must(parts[0] <= 12 || (parts[2] == 0 && static_cast<int64_t>(parts[3]) + parts[0] <= size), "the place of a text");
      must(std::string(from, parts[0]) == one->second, "a text");
      must(parts[0] <= 12 || !memcmp(parts + 1, from, 4), "the first bytes of a text");
    }
  }
  for (const Text& text : texts)
    must(!inside || (text.met == met[text.field] && text.shown == text.met && (text.first_place >= 0) == (text.met > 0)),
         "a count");
}

int main(int count, char** words) {
  if (count != 3 || number_size() != sizeof(Number) || text_size() != sizeof(Text))
    return 2;
  chance.seed(strtoul(words[2], nullptr, 10));
  uint64_t inputs = strtoul(words[1], nullptr, 10);
  for (uint64_t done = 0; done < inputs; done++)
    once();
  printf("%llu inputs of the reader of records, all as in a plain walk\n", static_cast<unsigned long long>(inputs));
  return 0;
}
