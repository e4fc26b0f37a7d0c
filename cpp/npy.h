// NumPy's .npy files (format 1.0 and 2.0), little-endian, C order, the types of element_type.h.
// Anything else is refused by name: numpy.org/doc/stable/reference/generated/numpy.lib.format.html
#pragma once

#include <string>

#include "array.h"

namespace tilex {

// Throws UsageError naming `path` and what is wrong with it.
ArrayType read_npy_type(const std::string& path);
Array read_npy(const std::string& path, std::size_t offset);
void write_npy(const std::string& path, const Array& array);

}  // namespace tilex
