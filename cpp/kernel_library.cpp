#include "kernel_library.h"

#include <cstdint>
#include <filesystem>

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>

#include "error.h"

namespace tilex {
namespace {

namespace ffi = tvm::ffi;

// TVM breaks and indents its messages; ours are one line.
std::string one_line(const std::string& text) {
  std::string line;
  for (char c : text) {
    const bool space = c == '\n' || c == '\t' || c == ' ';
    if (!space) line += c;
    if (space && !line.empty() && line.back() != ' ') line += ' ';
  }
  return line;
}

ffi::Module load(const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::is_regular_file(path, ignored)) throw UsageError(path + ": no such file");
  const std::string suffix = std::filesystem::path(path).extension().string();
  if (suffix != ".so" && suffix != ".dylib" && suffix != ".dll") {
    throw UsageError(path + ": not a kernel library (its name ends in .so, .dylib or .dll)");
  }
  try {
    // An absolute path keeps the dynamic linker from searching its own folders.
    return ffi::Module::LoadFromFile(std::filesystem::absolute(path).string());
  } catch (const ffi::Error& error) {
    throw UsageError(path + ": not a loadable kernel library: " + one_line(error.message()));
  }
}

DLTensor view(Array& array) {
  DLTensor tensor{};
  tensor.data = array.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = static_cast<int>(array.type().shape.size());
  tensor.dtype = array.type().element->dlpack;
  tensor.shape = const_cast<std::int64_t*>(array.type().shape.data());
  // No strides: row-major. With strides, the kernel complains of them where a shape is wrong.
  tensor.strides = nullptr;
  return tensor;
}

std::string given(const std::vector<Array>& arrays) {
  std::string text;
  for (const Array& array : arrays) text += (text.empty() ? "" : ", ") + array.type().text();
  return text;
}

}  // namespace

void call_kernel(const std::string& path, const std::string& function,
                 std::vector<Array>& arrays) {
  const ffi::Module module = load(path);
  const ffi::Optional<ffi::Function> kernel = module->GetFunction(function);
  if (!kernel.has_value()) throw UsageError(path + " has no function '" + function + "'");

  std::vector<DLTensor> tensors;
  for (Array& array : arrays) tensors.push_back(view(array));
  std::vector<ffi::AnyView> arguments;
  for (DLTensor& tensor : tensors) arguments.emplace_back(&tensor);
  try {
    ffi::Any result;
    kernel.value().CallPacked(arguments.data(), static_cast<std::int32_t>(arguments.size()),
                              &result);
  } catch (const ffi::Error& error) {
    throw UsageError(function + ": " + one_line(error.message()) + "; given " + given(arrays));
  }
}

}  // namespace tilex
