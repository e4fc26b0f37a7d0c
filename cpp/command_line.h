// The command line: what to load, what to call it with, what to check afterwards.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "array.h"
#include "compare.h"

namespace tilex {

// One argument of the call, in call order.
struct Argument {
  enum class Source { input, output_like, output };

  Source source;
  std::string text;                     // a file, or TYPE and extents of an output
  std::optional<std::string> expect;    // reference file
  std::optional<std::string> write;     // file that receives the array after the call
  std::optional<double> rtol, atol;
};

struct Command {
  bool help = false;
  bool list = false;  // print the library's entries; there is no function then
  std::string library;
  std::string function;
  std::vector<Argument> arguments;
  std::size_t offset = 0;  // bytes that every array starts past a 64-byte boundary
};

extern const char* const kHelp;

// `words` without the program's name; a word @FILE is replaced by the lines of FILE.
// Throws UsageError.
Command parse_command_line(const std::vector<std::string>& words);

// Type of an output written as "float32:3x4096". Throws UsageError.
ArrayType parse_array_type(const std::string& text);

}  // namespace tilex
