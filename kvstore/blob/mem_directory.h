// SPDX-License-Identifier: Apache-2.0
//
// MemDirectory: a Directory in memory, for tests of what disks do. One thread; nothing blocks. It
// can fail requests, tear writes, run out of space or vanish on command, and it keeps a journal
// from which the folder after a crash at any point is made. It has no lock: two stores on one
// folder are the test's affair.
#pragma once

#include <cerrno>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/stdx/status.h"
#include "kvstore/blob/directory.h"

namespace weir::kv {

class MemDirectory : public Directory {
 public:
  using Files = std::map<std::string, std::string, std::less<>>;

  // One change of the folder.
  struct Change {
    enum class Kind { kCreate, kWrite, kSize, kRemove, kReplace } kind = Kind::kWrite;
    std::string name;
    uint64_t offset = 0;
    std::string bytes;
  };
  // Shared with the test, which outlives the store.
  struct World {
    Files files;
    std::vector<Change> journal;
    uint64_t space = UINT64_MAX;
    bool gone = false;                                          // the folder was removed
    std::function<int64_t(const IoRequest&, int64_t)> outcome;  // replaces what a request answers
  };

  explicit MemDirectory(World* world) : world_(*world) {}

  // The folder as a crash leaves it after `changes` changes, the last write torn at `torn_bytes`.
  static Files After(const std::vector<Change>& journal, size_t changes, uint64_t torn_bytes) {
    Files files;
    for (size_t i = 0; i < changes; ++i) {
      Change change = journal[i];
      if (i + 1 == changes && change.kind == Change::Kind::kWrite)
        change.bytes.resize(std::min<size_t>(change.bytes.size(), torn_bytes));
      Apply(change, &files);
    }
    return files;
  }

  absl::StatusOr<std::vector<File>> List() override {
    std::vector<File> files;
    for (const auto& [name, bytes] : world_.files) files.push_back({name, bytes.size()});
    return files;
  }
  absl::StatusOr<int> Open(std::string_view name, Mode mode) override {
    if (world_.gone) return Error(Reason::kPeerLost, "the folder is gone");
    if (mode == Mode::kExisting && !world_.files.contains(name))
      return Error(Reason::kPeerLost, "no such file");
    if (mode == Mode::kCreate) Do({Change::Kind::kCreate, std::string(name), 0, ""});
    open_.push_back(std::string(name));
    return static_cast<int>(open_.size() - 1);
  }
  void Close(int) override {}
  absl::Status Allocate(int fd, uint64_t bytes) override {
    uint64_t used = 0;
    for (const auto& [name, text] : world_.files) used += text.size();
    if (used + bytes > world_.space) return Error(Reason::kNoCapacity, "the disk is full");
    return Truncate(fd, bytes);
  }
  absl::Status Truncate(int fd, uint64_t bytes) override {
    Do({Change::Kind::kSize, open_[static_cast<size_t>(fd)], bytes, ""});
    return absl::OkStatus();
  }
  absl::Status Remove(std::string_view name) override {
    Do({Change::Kind::kRemove, std::string(name), 0, ""});
    return absl::OkStatus();
  }
  absl::Status Replace(std::string_view name, std::string_view text) override {
    if (world_.gone) return Error(Reason::kPeerLost, "the folder is gone");
    if (world_.space == 0) return Error(Reason::kNoCapacity, "the disk is full");
    Do({Change::Kind::kReplace, std::string(name), 0, std::string(text)});
    return absl::OkStatus();
  }
  absl::StatusOr<std::string> ReadSmall(std::string_view name, uint64_t) override {
    const auto found = world_.files.find(name);
    if (found == world_.files.end()) return Error(Reason::kUnknownModel, "no such file");
    return found->second;
  }
  bool Submit(const IoRequest& request) override {
    if (waiting_.size() >= 64) return false;
    waiting_.push_back(request);
    return true;
  }
  void Poll(IoWait, std::vector<IoResult>* out) override {
    if (waiting_.empty()) return;
    const IoRequest request = waiting_.front();
    waiting_.pop_front();
    int64_t bytes = Move(request);
    if (world_.outcome) bytes = world_.outcome(request, bytes);
    out->push_back({request.cookie, bytes});
  }

 private:
  static void Apply(const Change& change, Files* files) {
    std::string& file = (*files)[change.name];
    switch (change.kind) {
      case Change::Kind::kCreate:
        file.clear();
        break;
      case Change::Kind::kSize:
        file.resize(change.offset);
        break;
      case Change::Kind::kReplace:
        file = change.bytes;
        break;
      case Change::Kind::kRemove:
        files->erase(change.name);
        break;
      case Change::Kind::kWrite:
        if (file.size() < change.offset + change.bytes.size())
          file.resize(change.offset + change.bytes.size());
        file.replace(change.offset, change.bytes.size(), change.bytes);
        break;
    }
  }
  void Do(Change change) {
    Apply(change, &world_.files);
    world_.journal.push_back(std::move(change));
  }
  int64_t Move(const IoRequest& request) {
    if (world_.gone) return -EIO;
    if (request.kind == IoRequest::Kind::kSync) return 0;
    const std::string& name = open_[static_cast<size_t>(request.fd)];
    uint64_t moved = 0;
    std::string written;
    for (uint32_t i = 0; i < request.part_count; ++i) {
      const iovec& part = request.parts[i];
      if (request.kind == IoRequest::Kind::kWrite) {
        written.append(static_cast<const char*>(part.iov_base), part.iov_len);
        continue;
      }
      const std::string& file = world_.files[name];
      const uint64_t at = request.offset + moved;
      if (at >= file.size()) break;
      const uint64_t count = std::min<uint64_t>(part.iov_len, file.size() - at);
      std::memcpy(part.iov_base, file.data() + at, count);
      moved += count;
    }
    if (request.kind == IoRequest::Kind::kRead) return static_cast<int64_t>(moved);
    moved = written.size();
    Do({Change::Kind::kWrite, name, request.offset, std::move(written)});
    return static_cast<int64_t>(moved);
  }

  World& world_;
  std::vector<std::string> open_;
  std::deque<IoRequest> waiting_;
};

}  // namespace weir::kv
