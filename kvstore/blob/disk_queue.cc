// SPDX-License-Identifier: Apache-2.0
#include "kvstore/blob/disk_queue.h"

#include <liburing.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <string>

#include "base/stdx/check.h"
#include "base/stdx/status.h"

namespace weir::kv {
namespace {

class RingQueue : public DiskQueue {
 public:
  explicit RingQueue(uint32_t depth) : slots_(depth) {
    for (uint32_t i = depth; i > 0; --i) free_.push_back(i - 1);
  }
  ~RingQueue() override {
    if (!open_) return;
    std::vector<IoResult> rest;  // the kernel may still write into buffers
    while (under_way() > 0 && !broken_) Poll(IoWait::kForOne, &rest);
    io_uring_queue_exit(&ring_);
  }

  absl::Status Open() {
    io_uring_params params{};
    params.flags = IORING_SETUP_COOP_TASKRUN;
    const auto entries = static_cast<unsigned>(slots_.size());
    int result = io_uring_queue_init_params(entries, &ring_, &params);
    if (result == -EINVAL) {  // a kernel before 5.19
      params = {};
      result = io_uring_queue_init_params(entries, &ring_, &params);
    }
    if (result < 0) {
      return Error(Reason::kNoCapacity, std::string("io_uring: ") + std::strerror(-result));
    }
    open_ = true;
    return absl::OkStatus();
  }

  bool Submit(const IoRequest& request) override {
    if (free_.empty() || broken_) return false;
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return false;
    const uint32_t slot = free_.back();
    free_.pop_back();
    IoRequest& kept = slots_[slot] = request;  // its iovecs are read when the ring is entered
    switch (request.kind) {
      case IoRequest::Kind::kRead:
        io_uring_prep_readv(entry, kept.fd, kept.parts.data(), kept.part_count, kept.offset);
        break;
      case IoRequest::Kind::kWrite:
        io_uring_prep_writev(entry, kept.fd, kept.parts.data(), kept.part_count, kept.offset);
        break;
      case IoRequest::Kind::kSync:
        io_uring_prep_fsync(entry, kept.fd, IORING_FSYNC_DATASYNC);
        break;
    }
    io_uring_sqe_set_data64(entry, slot);
    ++unsent_;
    return true;
  }

  void Poll(IoWait wait, std::vector<IoResult>* out) override {
    if (under_way() == 0) return;
    const bool block = wait == IoWait::kForOne && io_uring_cq_ready(&ring_) == 0;
    if (unsent_ > 0 || block) {
      const int sent = io_uring_submit_and_wait(&ring_, block ? 1 : 0);
      if (sent >= 0) {
        unsent_ -= static_cast<uint32_t>(sent);
      } else if (sent != -EINTR && sent != -EAGAIN && sent != -EBUSY) {
        // The ring itself failed: nothing more can be learnt of what is under way, so nothing is
        // told of it, and its buffers stay taken.
        WEIR_REACHED("disk queue: the ring failed");
        broken_ = true;
        return;
      }
    }
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) {
      const auto slot = static_cast<uint32_t>(io_uring_cqe_get_data64(entry));
      out->push_back({slots_[slot].cookie, entry->res});
      io_uring_cqe_seen(&ring_, entry);
      free_.push_back(slot);
    }
  }

 private:
  size_t under_way() const { return slots_.size() - free_.size(); }

  io_uring ring_{};
  bool open_ = false;
  bool broken_ = false;
  std::vector<IoRequest> slots_;
  std::vector<uint32_t> free_;
  uint32_t unsent_ = 0;
};

class PlainQueue : public DiskQueue {
 public:
  explicit PlainQueue(uint32_t depth) : depth_(depth) {}

  bool Submit(const IoRequest& request) override {
    if (waiting_.size() >= depth_) return false;
    waiting_.push_back(request);
    return true;
  }

  void Poll(IoWait, std::vector<IoResult>* out) override {
    if (waiting_.empty()) return;
    const IoRequest request = waiting_.front();
    waiting_.pop_front();
    int64_t result = 0;
    do {
      result = Do(request);
    } while (result < 0 && errno == EINTR);
    out->push_back({request.cookie, result < 0 ? -errno : result});
  }

 private:
  static int64_t Do(const IoRequest& request) {
    const auto parts = static_cast<int>(request.part_count);
    const auto offset = static_cast<off_t>(request.offset);
    switch (request.kind) {
      case IoRequest::Kind::kRead:
        return preadv(request.fd, request.parts.data(), parts, offset);
      case IoRequest::Kind::kWrite:
        return pwritev(request.fd, request.parts.data(), parts, offset);
      case IoRequest::Kind::kSync:
        return fdatasync(request.fd);
    }
    return 0;
  }

  const uint32_t depth_;
  std::deque<IoRequest> waiting_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<DiskQueue>> MakeRingQueue(uint32_t depth) {
  auto queue = std::make_unique<RingQueue>(depth);
  WEIR_TRY(queue->Open());
  return queue;
}

std::unique_ptr<DiskQueue> MakePlainQueue(uint32_t depth) {
  return std::make_unique<PlainQueue>(depth);
}

}  // namespace weir::kv
