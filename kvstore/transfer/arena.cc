// SPDX-License-Identifier: Apache-2.0
#include "kvstore/transfer/arena.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/stdx/bytes.h"
#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "base/stdx/units.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

namespace weir::kv {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kMagic = 0x314152454e415257;  // "WRANERA1"
constexpr char kFileName[] = "weir-arena";

// The last page of a memory file. It lies behind the data so that the data keeps the alignment of
// the mapping, which large pages and direct I/O need.
struct Trailer {
  uint64_t magic;
  uint64_t bytes;
  uint8_t token[16];
};

absl::Status SystemError(const char* what) {
  return Error(Reason::kNoCapacity, std::string("an arena: ") + what + ": " + std::strerror(errno));
}

class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }
  int Release() {
    const int fd = fd_;
    fd_ = -1;
    return fd;
  }

 private:
  int fd_;
};

absl::StatusOr<RegionToken> ParseBootId() {
  FileDescriptor file(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  char text[64] = {};
  if (file.get() < 0 || read(file.get(), text, sizeof(text) - 1) < 36) {
    return Error(Reason::kNoCapacity, "the kernel tells no boot id");
  }
  RegionToken token{};
  size_t digits = 0;
  for (const char* at = text; *at != 0 && digits < 32; ++at) {
    const char c = *at;
    const bool decimal = c >= '0' && c <= '9';
    if (!decimal && (c < 'a' || c > 'f')) continue;
    const auto value = static_cast<uint8_t>(decimal ? c - '0' : c - 'a' + 10);
    token[digits / 2] = static_cast<uint8_t>(token[digits / 2] << 4 | value);
    ++digits;
  }
  return token;
}

// Opens the descriptor's file for reading, if the entry names one of our memory files. The name is
// looked at first because opening some other kind of file may have side effects.
absl::StatusOr<int> OpenPeerFile(const RegionDescriptor& descriptor) {
  const std::string path =
      "/proc/" + std::to_string(descriptor.pid) + "/fd/" + std::to_string(descriptor.fd);
  char target[128] = {};
  const ssize_t length = readlink(path.c_str(), target, sizeof(target) - 1);
  const std::string expected = std::string("/memfd:") + kFileName;
  if (length < 0 || std::string_view(target).substr(0, expected.size()) != expected) {
    return Error(Reason::kPeerLost, "the peer's memory file is not there or not ours to open",
                 "regions.fd");
  }
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
  if (fd < 0) {
    return Error(Reason::kPeerLost, "the peer's memory file may not be opened", "regions.fd");
  }
  return fd;
}

absl::Status CheckTrailer(const std::byte* at, const RegionDescriptor& descriptor) {
  const auto trailer = LoadAs<Trailer>(at);
  if (trailer.magic != kMagic || trailer.bytes != descriptor.bytes ||
      std::memcmp(trailer.token, descriptor.token.data(), sizeof(trailer.token)) != 0) {
    WEIR_REACHED("arena: token of another life");
    return Error(Reason::kPeerLost, "the peer's memory file is not the one described",
                 "regions.token");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::CreateShared(uint64_t bytes) {
  if (bytes == 0) return Error(Reason::kBadField, "an arena has no bytes", "bytes");
  const uint64_t mapped = AlignUp(bytes, kPageBytes) + kPageBytes;
  FileDescriptor file(memfd_create(kFileName, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) return SystemError("memfd_create");
  if (ftruncate(file.get(), static_cast<off_t>(mapped)) != 0) return SystemError("ftruncate");
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return SystemError("mmap");
  madvise(data, mapped, MADV_HUGEPAGE);  // a hint; without it pages are small
  const RegionToken token = MakeRegionToken();
  Trailer trailer{kMagic, bytes, {}};
  std::memcpy(trailer.token, token.data(), token.size());
  StoreAs(static_cast<std::byte*>(data) + (mapped - kPageBytes), trailer);
  // Our own writable mapping exists already and stays; later ones are refused by the kernel.
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (fcntl(file.get(), F_ADD_SEALS, seals) != 0) {
    const absl::Status status = SystemError("sealing");
    munmap(data, mapped);
    return status;
  }
  return std::unique_ptr<Arena>(
      new Arena(static_cast<std::byte*>(data), bytes, mapped, file.Release(), token));
}

absl::StatusOr<std::unique_ptr<Arena>> Arena::CreatePrivate(uint64_t bytes) {
  if (bytes == 0) return Error(Reason::kBadField, "an arena has no bytes", "bytes");
  const uint64_t mapped = AlignUp(bytes, kPageBytes);
  void* data = mmap(nullptr, mapped, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) return SystemError("mmap");
  madvise(data, mapped, MADV_HUGEPAGE);
  return std::unique_ptr<Arena>(
      new Arena(static_cast<std::byte*>(data), bytes, mapped, -1, MakeRegionToken()));
}

Arena::~Arena() {
  munmap(data_, mapped_);
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<std::shared_ptr<const ArenaView>> ArenaView::Map(
    const RegionDescriptor& descriptor) {
  WEIR_CHECK(descriptor.kind == RegionKind::kShm);
  if (descriptor.boot == RegionToken{} || descriptor.boot != BootToken()) {
    return Error(Reason::kPeerLost, "the peer's memory is on another host", "regions.boot");
  }
  WEIR_ASSIGN(const int fd, OpenPeerFile(descriptor));
  FileDescriptor file(fd);
  const uint64_t mapped = AlignUp(descriptor.bytes, kPageBytes) + kPageBytes;
  struct stat info {};
  // Without the seal the peer could shorten the file and our reads would fault.
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (fstat(file.get(), &info) != 0 || static_cast<uint64_t>(info.st_size) != mapped ||
      seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return Error(Reason::kPeerLost, "the peer's memory file has another size or no seal",
                 "regions.bytes");
  }
  void* data = mmap(nullptr, mapped, PROT_READ, MAP_SHARED, file.get(), 0);
  if (data == MAP_FAILED) return SystemError("mmap of a peer's memory");
  std::shared_ptr<const ArenaView> view(
      new ArenaView(static_cast<const std::byte*>(data), descriptor.bytes, mapped));
  WEIR_TRY(CheckTrailer(view->data() + (mapped - kPageBytes), descriptor));
  return view;
}

ArenaView::~ArenaView() { munmap(const_cast<std::byte*>(data_), mapped_); }

RegionToken BootToken() { return ParseBootId().value_or(RegionToken{}); }

RegionDescriptor DescribeShared(uint32_t region, const Arena& arena) {
  WEIR_CHECK(arena.shared());
  RegionDescriptor descriptor;
  descriptor.kind = RegionKind::kShm;
  descriptor.region = region;
  descriptor.bytes = arena.bytes();
  descriptor.token = arena.token();
  descriptor.boot = BootToken();
  descriptor.pid = static_cast<uint32_t>(getpid());
  descriptor.fd = static_cast<uint32_t>(arena.fd());
  return descriptor;
}

}  // namespace weir::kv
