#include "command_line.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>

#include "error.h"

namespace tilex {

const char* const kHelp =
    R"(usage: tilex_run LIBRARY FUNCTION ARGUMENT... [--offset-bytes N]
       tilex_run LIBRARY --list

Runs FUNCTION of a kernel LIBRARY on the CPU, without Python or the compiler; --list prints the
library's functions with their arguments. A dynamic extent is whatever the arrays have.

Arguments, in call order:
  --input FILE.npy        an array read from FILE
  --output TYPE:SHAPE     a new array, as in float32:3x4096
  --output-like FILE.npy  a new array with FILE's type and shape

After an argument, about that argument once the call is done:
  --expect FILE.npy       compare with this reference (float64, or the argument's own type)
  --rtol R, --atol A      right if |y - e| <= R * |e| + A; both are 0 unless given
  --write FILE.npy        write the array

  --offset-bytes N        start every array N bytes past a 64-byte boundary (whole elements)
  @FILE                   read further words from FILE, one a line
  --help                  print this text

.npy types: float32, float16, bfloat16 (stored as uint16), int64, int32, uint8, bool, float64;
little-endian, C order. Exit codes: 0 right, 1 wrong result, 2 the run could not be made.
)";

namespace {

std::vector<std::string> expanded(const std::vector<std::string>& words) {
  std::vector<std::string> all;
  for (const std::string& word : words) {
    if (word.empty() || word[0] != '@') {
      all.push_back(word);
      continue;
    }
    std::ifstream file(word.substr(1));
    if (!file) throw UsageError(word.substr(1) + ": cannot be read");
    for (std::string line; std::getline(file, line);) {
      if (!line.empty()) all.push_back(line);
    }
  }
  return all;
}

class Words {
 public:
  explicit Words(std::vector<std::string> words) : words_(std::move(words)) {}

  bool empty() const { return next_ == words_.size(); }
  std::string take() { return words_[next_++]; }

  std::string value(const std::string& option) {
    if (empty() || words_[next_].rfind("--", 0) == 0) throw UsageError(option + " needs a value");
    return take();
  }

 private:
  std::vector<std::string> words_;
  std::size_t next_ = 0;
};

double tolerance(const std::string& option, const std::string& text) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (text.empty() || *end != '\0' || !std::isfinite(value) || value < 0) {
    throw UsageError(option + " is '" + text + "', not a finite number >= 0");
  }
  return value;
}

// False unless the whole text is a decimal number that fits.
bool parse_integer(std::string_view text, std::int64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value >= 0;
}

std::size_t offset_bytes(const std::string& text) {
  constexpr std::int64_t kLargest = 4096;
  std::int64_t value = 0;
  if (!parse_integer(text, value) || value > kLargest) {
    throw UsageError("--offset-bytes is '" + text + "', not an integer in [0, 4096]");
  }
  return static_cast<std::size_t>(value);
}

template <typename T>
void set_once(std::optional<T>& field, const std::string& option, T value) {
  if (field) throw UsageError(option + " is given twice for one argument");
  field = std::move(value);
}

bool add_argument(const std::string& option, Words& words, Command& command) {
  Argument::Source source;
  if (option == "--input") {
    source = Argument::Source::input;
  } else if (option == "--output") {
    source = Argument::Source::output;
  } else if (option == "--output-like") {
    source = Argument::Source::output_like;
  } else {
    return false;
  }
  Argument argument{};
  argument.source = source;
  argument.text = words.value(option);
  command.arguments.push_back(std::move(argument));
  return true;
}

bool describe_argument(const std::string& option, Words& words, Command& command) {
  const bool known = option == "--expect" || option == "--write" || option == "--rtol" ||
                     option == "--atol";
  if (!known) return false;
  if (command.arguments.empty()) throw UsageError(option + " comes before any argument");
  Argument& argument = command.arguments.back();
  const std::string value = words.value(option);
  if (option == "--expect") set_once(argument.expect, option, value);
  if (option == "--write") set_once(argument.write, option, value);
  if (option == "--rtol") set_once(argument.rtol, option, tolerance(option, value));
  if (option == "--atol") set_once(argument.atol, option, tolerance(option, value));
  return true;
}

void check(const Command& command) {
  if (command.list) {
    if (command.library.empty()) throw UsageError("--list needs LIBRARY; see --help");
    if (!command.function.empty() || !command.arguments.empty()) {
      throw UsageError("--list takes a LIBRARY and nothing else; see --help");
    }
    return;
  }
  if (command.function.empty()) throw UsageError("needs LIBRARY and FUNCTION; see --help");
  if (command.arguments.empty()) throw UsageError("needs at least one argument; see --help");
  for (const Argument& argument : command.arguments) {
    if ((argument.rtol || argument.atol) && !argument.expect) {
      throw UsageError("a tolerance without --expect for '" + argument.text + "'");
    }
  }
}

}  // namespace

Command parse_command_line(const std::vector<std::string>& given) {
  Words words(expanded(given));
  Command command;
  while (!words.empty()) {
    const std::string word = words.take();
    if (word == "--help" || word == "-h") {
      command.help = true;
      return command;
    }
    if (add_argument(word, words, command) || describe_argument(word, words, command)) continue;
    if (word == "--list") {
      command.list = true;
    } else if (word == "--offset-bytes") {
      command.offset = offset_bytes(words.value(word));
    } else if (word.rfind("-", 0) == 0) {
      throw UsageError("unknown option '" + word + "'; see --help");
    } else if (command.library.empty()) {
      command.library = word;
    } else if (command.function.empty()) {
      command.function = word;
    } else {
      throw UsageError("unexpected word '" + word + "'; arrays follow --input or --output");
    }
  }
  check(command);
  return command;
}

ArrayType parse_array_type(const std::string& text) {
  const std::size_t colon = text.find(':');
  const ElementType* element = element_type_named(text.substr(0, colon));
  if (colon == std::string::npos || element == nullptr) {
    throw UsageError("output '" + text + "' is not TYPE:SHAPE, as in float32:3x4096 (types: " +
                     element_type_names() + ")");
  }
  std::vector<std::int64_t> shape;
  for (std::size_t start = colon + 1; start <= text.size();) {
    const std::size_t end = std::min(text.find('x', start), text.size());
    std::int64_t extent = 0;
    if (!parse_integer(std::string_view(text).substr(start, end - start), extent)) {
      throw UsageError("output '" + text + "': the shape is not integers joined by x");
    }
    shape.push_back(extent);
    start = end + 1;
  }
  checked_size(shape, element->bytes());
  return ArrayType{element, std::move(shape)};
}

}  // namespace tilex
