#include "npy.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <utility>

#include "error.h"
#include "npy_header.h"

namespace tilex {
namespace {

#if defined(__BYTE_ORDER__)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "arrays are stored little-endian");
#endif

constexpr std::string_view kMagic("\x93NUMPY", 6);
constexpr std::size_t kPrelude = 10;       // magic, version, two bytes of header length
constexpr std::size_t kDataAlignment = 64; // NumPy pads the header to this
constexpr std::size_t kLongestHeader = 1 << 16;

std::string reason() { return std::strerror(errno); }

void read_exactly(std::ifstream& file, char* destination, std::size_t bytes) {
  file.read(destination, static_cast<std::streamsize>(bytes));
  if (static_cast<std::size_t>(file.gcount()) != bytes) throw UsageError("the file is truncated");
}

std::size_t read_little_endian(std::ifstream& file, std::size_t bytes) {
  std::array<unsigned char, 4> raw{};
  read_exactly(file, reinterpret_cast<char*>(raw.data()), bytes);
  std::size_t value = 0;
  for (std::size_t i = bytes; i-- > 0;) value = value << 8 | raw[i];
  return value;
}

const ElementType& supported(const std::string& descr) {
  const ElementType* type = element_type_of_npy(descr);
  if (type != nullptr) return *type;
  if (descr == "<V2") {
    throw UsageError("element type '<V2' is opaque; save bfloat16 as its bits, "
                     "array.view(numpy.uint16)");
  }
  throw UsageError("element type '" + descr + "' is not supported (" + element_type_names() +
                   " are, little-endian, bfloat16 as uint16)");
}

ArrayType read_type(std::ifstream& file) {
  std::array<char, 8> start{};
  read_exactly(file, start.data(), start.size());
  if (std::string_view(start.data(), kMagic.size()) != kMagic) {
    throw UsageError("not a .npy file");
  }
  const int major = static_cast<unsigned char>(start[6]);
  const int minor = static_cast<unsigned char>(start[7]);
  if ((major != 1 && major != 2) || minor != 0) {
    throw UsageError(".npy format " + std::to_string(major) + "." + std::to_string(minor) +
                     " is not supported (1.0 and 2.0 are)");
  }
  const std::size_t length = read_little_endian(file, major == 1 ? 2 : 4);
  if (length > kLongestHeader) throw UsageError("malformed header");
  std::string text(length, '\0');
  read_exactly(file, text.data(), length);
  NpyHeader header = parse_npy_header(text);
  if (header.fortran_order) {
    throw UsageError("Fortran order is not supported; save numpy.ascontiguousarray(array)");
  }
  const ElementType& element = supported(header.descr);
  checked_size(header.shape, element.bytes());
  return ArrayType{&element, std::move(header.shape)};
}

// Runs `body` on the opened file; a complaint gets the file's name in front.
template <typename Body>
auto with_file(const std::string& path, Body body) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) throw UsageError(path + ": is a directory");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  if (!file) throw UsageError(path + ": cannot be read: " + reason());
  try {
    return body(file);
  } catch (const UsageError& error) {
    throw UsageError(path + ": " + error.what());
  }
}

void check_payload(std::ifstream& file, std::size_t bytes) {
  const auto start = file.tellg();
  file.seekg(0, std::ios::end);
  const auto found = static_cast<std::size_t>(file.tellg() - start);
  file.seekg(start);
  if (found != bytes) {
    throw UsageError("holds " + std::to_string(found) + " bytes of data, not the " +
                     std::to_string(bytes) + " of its header");
  }
}

}  // namespace

ArrayType read_npy_type(const std::string& path) { return with_file(path, read_type); }

Array read_npy(const std::string& path, std::size_t offset) {
  return with_file(path, [offset](std::ifstream& file) {
    ArrayType type = read_type(file);
    check_payload(file, type.bytes());  // before memory is taken for it
    Array array(std::move(type), offset);
    read_exactly(file, reinterpret_cast<char*>(array.data()), array.type().bytes());
    return array;
  });
}

void write_npy(const std::string& path, const Array& array) {
  const ArrayType& type = array.type();
  std::string header = format_npy_header({type.element->npy, false, type.shape});
  header.append(kDataAlignment - (kPrelude + header.size() + 1) % kDataAlignment, ' ');
  header += '\n';
  const auto length = static_cast<std::uint16_t>(header.size());

  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << kMagic << '\x01' << '\x00' << static_cast<char>(length & 0xff)
       << static_cast<char>(length >> 8) << header;
  file.write(reinterpret_cast<const char*>(array.data()),
             static_cast<std::streamsize>(type.bytes()));
  file.close();
  if (!file) throw UsageError(path + ": cannot be written: " + reason());
}

}  // namespace tilex
