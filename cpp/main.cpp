// tilex_run: runs an exported tile kernel on .npy files and checks what it wrote.

#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "command_line.h"
#include "compare.h"
#include "error.h"
#include "kernel_library.h"
#include "npy.h"

namespace tilex {
namespace {

constexpr int kRight = 0, kWrong = 1, kUsage = 2;

Array make_array(const Argument& argument, std::size_t offset) {
  switch (argument.source) {
    case Argument::Source::input: return read_npy(argument.text, offset);
    case Argument::Source::output_like: return Array(read_npy_type(argument.text), offset);
    case Argument::Source::output: return Array(parse_array_type(argument.text), offset);
  }
  throw UsageError("unknown kind of argument");
}

bool report(std::size_t position, const Array& actual, const Array& expected,
            const Tolerance& tolerance) {
  const Comparison found = compare(actual, expected, tolerance);
  const ArrayType& type = actual.type();
  std::string name = "argument " + std::to_string(position) + " (" + type.text();
  if (actual.offset() != 0) name += ", unaligned by " + std::to_string(actual.offset());
  name += ")";
  if (type.size() == 0) {
    std::printf("%s: right, no elements\n", name.c_str());
    return true;
  }
  const std::string index = index_text(type, found.worst);
  if (found.wrong == 0) {
    std::printf("%s: right, worst at %s: error %.3g, allowed %.3g\n", name.c_str(), index.c_str(),
                found.error, found.allowed);
    return true;
  }
  std::fprintf(stderr,
               "tilex_run: %s: wrong in %zu of %zu elements, worst at %s: got %s, expected %s, "
               "allowed error %.3g\n",
               name.c_str(), found.wrong, type.size(), index.c_str(),
               element_text(*type.element, actual.at(found.worst)).c_str(),
               element_text(*expected.type().element, expected.at(found.worst)).c_str(),
               found.allowed);
  return false;
}

bool check(const Command& command, const std::vector<Array>& arrays,
           const std::vector<std::optional<Array>>& references) {
  bool right = true;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    const Argument& argument = command.arguments[i];
    if (argument.write) write_npy(*argument.write, arrays[i]);
    if (!references[i]) continue;
    const Tolerance tolerance{argument.rtol.value_or(0.0), argument.atol.value_or(0.0)};
    right &= report(i, arrays[i], *references[i], tolerance);
  }
  return right;
}

// A message may quote a file or a word; whatever that holds, one line is printed.
std::string printable(std::string text) {
  for (char& c : text) {
    if ((c >= 0 && c < ' ') || c == '\x7f') c = '?';
  }
  return text;
}

int run(const std::vector<std::string>& words) {
  const Command command = parse_command_line(words);
  if (command.help) {
    std::fputs(kHelp, stdout);
    return kRight;
  }
  if (command.list) {
    for (const std::string& line : list_entries(command.library)) std::printf("%s\n", line.c_str());
    return kRight;
  }
  std::vector<Array> arrays;
  std::vector<std::optional<Array>> references;
  for (const Argument& argument : command.arguments) {
    arrays.push_back(make_array(argument, command.offset));
    references.emplace_back();
    if (argument.expect) references.back() = read_npy(*argument.expect, 0);
  }
  call_kernel(command.library, command.function, arrays);
  return check(command, arrays, references) ? kRight : kWrong;
}

}  // namespace
}  // namespace tilex

int main(int count, char** words) {
  try {
    return tilex::run({words + 1, words + count});
  } catch (const std::exception& error) {
    std::fprintf(stderr, "tilex_run: %s\n", tilex::printable(error.what()).c_str());
    return tilex::kUsage;
  }
}
