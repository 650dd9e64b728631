// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace weir::engine {
namespace {

absl::Status FileError(const std::string& path, std::string_view what) {
  return Error(Reason::kBadField,
               absl::StrCat(path, ": cannot ", std::string(what), ": ", std::strerror(errno)),
               "model");
}

class Descriptor {
 public:
  explicit Descriptor(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  const Descriptor file(path);
  if (file.get() < 0) return FileError(path, "open");
  struct stat info {};
  if (fstat(file.get(), &info) != 0) return FileError(path, "stat");
  if (!S_ISREG(info.st_mode)) {
    return Error(Reason::kBadField, absl::StrCat(path, ": not a regular file"), "model");
  }
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return std::unique_ptr<MappedFile>(new MappedFile({}));
  void* at = mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (at == MAP_FAILED) return FileError(path, "map");
  return std::unique_ptr<MappedFile>(new MappedFile({static_cast<const std::byte*>(at), size}));
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void DropPages(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t limit) {
  WEIR_ASSIGN(const std::unique_ptr<MappedFile> file, MappedFile::Open(path));
  if (file->bytes().size() > limit) {
    return Error(Reason::kTooLarge, absl::StrCat(path, ": larger than ", limit, " bytes"), "model");
  }
  return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
}

}  // namespace weir::engine
