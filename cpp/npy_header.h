// The text inside a .npy header: a Python dictionary of 'descr', 'fortran_order' and 'shape'.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tilex {

struct NpyHeader {
  std::string descr;
  bool fortran_order;
  std::vector<std::int64_t> shape;
};

// Throws UsageError without a file name; the caller knows it.
NpyHeader parse_npy_header(std::string_view text);

std::string format_npy_header(const NpyHeader& header);

}  // namespace tilex
