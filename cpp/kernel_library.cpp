#include "kernel_library.h"

#include <cstdint>
#include <filesystem>

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
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

constexpr std::int64_t kManifestFormat = 1;

// The text that the functions NAME_words and NAME hold; empty if the library has none.
std::string embedded_text(const ffi::Module& module, const std::string& name) {
  const ffi::Optional<ffi::Function> count = module->GetFunction(name + "_words");
  const ffi::Optional<ffi::Function> fill = module->GetFunction(name);
  if (!count.has_value() || !fill.has_value()) return "";
  const std::int64_t length = count.value()().cast<std::int64_t>();
  std::vector<std::int64_t> words(static_cast<std::size_t>(length));
  std::int64_t shape[] = {length};
  DLTensor tensor{};
  tensor.data = words.data();
  tensor.device = {kDLCPU, 0};
  tensor.ndim = 1;
  tensor.dtype = {kDLInt, 64, 1};
  tensor.shape = shape;
  fill.value()(&tensor);
  const char* bytes = reinterpret_cast<const char*>(words.data());
  const std::string text(bytes, words.size() * sizeof(std::int64_t));
  return text.substr(0, text.find('\0'));
}

}  // namespace

std::vector<std::string> list_entries(const std::string& path) {
  const ffi::Module module = load(path);
  const std::string text = embedded_text(module, "tilex_manifest");
  if (text.empty()) throw UsageError(path + " has no manifest (tx.export_library writes one)");
  std::vector<std::string> lines;
  try {
    const auto manifest = ffi::json::Parse(text).cast<ffi::Map<ffi::String, ffi::Any>>();
    if (manifest["format"].cast<std::int64_t>() != kManifestFormat) {
      throw UsageError(path + ": its manifest is of another format than 1");
    }
    for (const ffi::Any& any : manifest["entries"].cast<ffi::Array<ffi::Any>>()) {
      const auto entry = any.cast<ffi::Map<ffi::String, ffi::Any>>();
      lines.push_back(entry["signature"].cast<ffi::String>());
    }
  } catch (const ffi::Error& error) {
    throw UsageError(path + ": its manifest cannot be read: " + one_line(error.message()));
  }
  return lines;
}

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
