// SPDX-License-Identifier: Apache-2.0
#include "kvstore/blob/directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/stdx/check.h"
#include "base/stdx/status.h"
#include "kvstore/blob/disk_queue.h"

namespace weir::kv {
namespace {

absl::Status SystemError(std::string_view what, std::string_view name) {
  const int error = errno;
  const bool full = error == ENOSPC || error == EDQUOT || error == EMFILE || error == ENFILE;
  return Error(full ? Reason::kNoCapacity : Reason::kPeerLost,
               std::string(what) + " " + std::string(name) + ": " + std::strerror(error));
}

bool WriteAll(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = write(fd, text.data(), text.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    text.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

class LocalDirectory : public Directory {
 public:
  LocalDirectory(int folder, bool direct, std::unique_ptr<DiskQueue> queue)
      : folder_(folder), direct_(direct), queue_(std::move(queue)) {}
  ~LocalDirectory() override {
    queue_.reset();  // before descriptors go: it waits for what is under way
    close(folder_);
  }

  absl::StatusOr<std::vector<File>> List() override {
    const int again = openat(folder_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR* listing = again < 0 ? nullptr : fdopendir(again);
    if (listing == nullptr) {
      if (again >= 0) close(again);
      return SystemError("cannot list", "the folder");
    }
    std::vector<File> files;
    while (const dirent* entry = readdir(listing)) {
      struct stat info {};
      if (fstatat(folder_, entry->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0) continue;
      if (!S_ISREG(info.st_mode)) continue;
      files.push_back({entry->d_name, static_cast<uint64_t>(info.st_size)});
    }
    closedir(listing);
    return files;
  }

  absl::StatusOr<int> Open(std::string_view name, Mode mode) override {
    const std::string path(name);
    const int flags =
        O_RDWR | O_CLOEXEC | O_NOFOLLOW | (mode == Mode::kCreate ? O_CREAT | O_EXCL : 0);
    int fd = openat(folder_, path.c_str(), flags | (direct_ ? O_DIRECT : 0), 0640);
    if (fd < 0 && errno == EINVAL && direct_) {  // this file system has none
      direct_ = false;
      if (mode == Mode::kCreate) unlinkat(folder_, path.c_str(), 0);
      fd = openat(folder_, path.c_str(), flags, 0640);
    }
    if (fd < 0) return SystemError("cannot open", name);
    return fd;
  }

  void Close(int fd) override { close(fd); }

  absl::Status Allocate(int fd, uint64_t bytes) override {
    if (fallocate(fd, 0, 0, static_cast<off_t>(bytes)) == 0) return absl::OkStatus();
    if (errno != EOPNOTSUPP) return SystemError("cannot reserve space for", "a segment");
    return Truncate(fd, bytes);
  }

  absl::Status Truncate(int fd, uint64_t bytes) override {
    if (ftruncate(fd, static_cast<off_t>(bytes)) == 0) return absl::OkStatus();
    return SystemError("cannot set the size of", "a segment");
  }

  absl::Status Remove(std::string_view name) override {
    if (unlinkat(folder_, std::string(name).c_str(), 0) == 0) return absl::OkStatus();
    return SystemError("cannot remove", name);
  }

  absl::Status Replace(std::string_view name, std::string_view text) override {
    const std::string path(name);
    const std::string fresh = path + ".new";
    const int fd = openat(folder_, fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640);
    if (fd < 0) return SystemError("cannot write", name);
    const bool written = WriteAll(fd, text) && fsync(fd) == 0;
    const absl::Status failure = written ? absl::OkStatus() : SystemError("cannot write", name);
    close(fd);
    if (!written) return failure;
    if (renameat(folder_, fresh.c_str(), folder_, path.c_str()) != 0 || fsync(folder_) != 0) {
      return SystemError("cannot replace", name);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> ReadSmall(std::string_view name, uint64_t bytes_max) override {
    const int fd = openat(folder_, std::string(name).c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
      if (errno != ENOENT) return SystemError("cannot read", name);
      return Error(Reason::kUnknownModel, "there is no such file", "name");
    }
    std::string text(bytes_max + 1, '\0');
    const ssize_t got = pread(fd, text.data(), text.size(), 0);
    const absl::Status failure = got < 0 ? SystemError("cannot read", name) : absl::OkStatus();
    close(fd);
    if (got < 0) return failure;
    if (static_cast<uint64_t>(got) > bytes_max) {
      return Error(Reason::kCorrupt, "a file of the store is longer than any of its kind", "name");
    }
    text.resize(static_cast<size_t>(got));
    return text;
  }

  bool Submit(const IoRequest& request) override { return queue_->Submit(request); }
  void Poll(IoWait wait, std::vector<IoResult>* out) override { queue_->Poll(wait, out); }

 private:
  const int folder_;
  bool direct_;
  std::unique_ptr<DiskQueue> queue_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Directory>> OpenDirectory(const std::string& path,
                                                         const DirectoryOptions& options) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  const int folder = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return SystemError("cannot open the folder", path);
  if (flock(folder, LOCK_EX | LOCK_NB) != 0) {
    close(folder);
    return Error(Reason::kNoCapacity, "another process uses the folder " + path, "dir");
  }
  std::unique_ptr<DiskQueue> queue;
  if (options.engine == DirectoryOptions::Engine::kBest) {
    auto ring = MakeRingQueue(options.depth);
    if (ring.ok())
      queue = *std::move(ring);
    else
      WEIR_REACHED("directory: no io_uring here");
  }
  if (queue == nullptr) queue = MakePlainQueue(options.depth);
  return std::make_unique<LocalDirectory>(folder, options.direct, std::move(queue));
}

}  // namespace weir::kv
