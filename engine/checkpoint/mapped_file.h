// SPDX-License-Identifier: Apache-2.0
//
// A file mapped read-only for as long as the object lives. Opening blocks on the disk; reading the
// bytes afterwards may fault pages in. Any thread. The file must not shrink while it is mapped: a
// reader would get SIGBUS, as with every mapped file. Errors name the path.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/stdx/status.h"

namespace weir::engine {

class MappedFile {
 public:
  static absl::StatusOr<std::unique_ptr<MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  const std::span<const std::byte> bytes_;
};

// Takes pages of a mapped file out of this process's memory; reading them again brings them back.
void DropPages(std::span<const std::byte> bytes);

// The whole file as text, refused beyond `limit` bytes.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t limit);

}  // namespace weir::engine
