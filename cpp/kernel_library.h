// A kernel library that `tx.export_library` or `Artifact.export_library` wrote, through TVM's C++
// API.
#pragma once

#include <string>
#include <vector>

#include "array.h"

namespace tilex {

// Calls `function` of the shared library at `path` on `arrays`, in place, on the CPU.
// Throws UsageError if the library cannot be loaded, lacks the function, or if the function
// refuses the arrays (number, element type, shape, alignment).
void call_kernel(const std::string& path, const std::string& function, std::vector<Array>& arrays);

// One line for each entry of the library at `path`: its name, its arguments, and the ranges of its
// dynamic extents, as the library's manifest says them.
// Throws UsageError if the library cannot be loaded or has no manifest of a format known here.
std::vector<std::string> list_entries(const std::string& path);

}  // namespace tilex
