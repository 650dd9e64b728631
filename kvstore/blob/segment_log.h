// SPDX-License-Identifier: Apache-2.0
//
// SegmentLog: records on a local disk, appended to segment files that are written once and removed
// whole. Owned by one thread, see BlobStore for what may block; Open reads footers and blocks for
// that. Owns its directory, which no other process can open meanwhile. Whatever the disk does is a
// miss: a record counts only when its write was reported whole, footers and headers have checksums,
// and every read is verified against the key asked for.
//
//   seg-<epoch>-<number>   records one after the other, then (once full) a footer that lists them
//   store                  identity, epoch and erased domains; replaced atomically
//
// Nothing is synced for each record: what a crash loses is a miss. A finished segment is synced, an
// erased domain is durable before EraseDomain returns. When two free segments are no longer left,
// the segment with the best ratio of dead bytes and age goes; records read since they were written
// are kept by writing them again, at most a quarter of a segment and at most as much as
// write_amplification_max allows.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvstore/blob/aligned_buffer.h"
#include "kvstore/blob/blob_store.h"
#include "kvstore/blob/directory.h"
#include "kvstore/blob/segment_format.h"

namespace weir::kv {

struct SegmentLogOptions {
  uint64_t capacity_bytes = 0;            // at least four segments
  uint64_t segment_bytes = 256 * kMiB;    // at most 512 MiB
  uint32_t operations_max = 64;           // under way; at most half of them appends
  uint64_t append_bytes_max = 64 * kMiB;  // under way
  double write_amplification_max = 1.25;
  uint32_t write_errors_max = 8;  // in a row; then nothing more is written
};

class SegmentLog : public BlobStore {
 public:
  // Tells `found` of every record that is there, and takes the tag for it.
  using Found = std::function<BlobTag(const FoundRecord&)>;
  static absl::StatusOr<std::unique_ptr<SegmentLog>> Open(std::unique_ptr<Directory> directory,
                                                          const SegmentLogOptions& options,
                                                          const Found& found);
  ~SegmentLog() override;

  absl::StatusOr<BlobId> Append(const RecordHeader& header, std::span<const std::byte> payload,
                                BlobTag tag) override;
  absl::StatusOr<BlobId> Read(const BlobRead& read) override;
  void Poll(IoWait wait, std::vector<BlobEvent>* out) override;
  void Drop(Place place) override;
  absl::Status EraseDomain(const DomainId& domain) override;
  BlobStats stats() const override;
  // The header of a record, for tools: blocks, and only while nothing is under way.
  absl::StatusOr<RecordHeader> Inspect(Place place);

 private:
  // 8 bytes a record. States are kept in the page's upper bits, since a segment has at most 2^17
  // pages.
  struct Entry {
    static constexpr uint32_t kLive = 1u << 31;
    static constexpr uint32_t kHit = 1u << 30;
    uint32_t bits = 0;
    BlobTag tag = 0;
    uint32_t page() const { return bits & (kHit - 1); }
    bool live() const { return (bits & kLive) != 0; }
    bool hit() const { return (bits & kHit) != 0; }
  };
  struct Segment {
    enum class State : uint8_t { kOpen, kSealing, kSealed, kDying };
    SegmentName name;
    State state = State::kOpen;
    int fd = -1;  // opened at the first use
    uint32_t end_page = 0;
    uint64_t file_bytes = 0;
    uint32_t live_pages = 0;
    uint32_t reads = 0;  // under way
    uint32_t writes = 0;
    std::vector<Entry> entries;            // in order of pages
    std::vector<RecordSummary> summaries;  // of the same; until sealed
    AlignedBuffer footer;                  // while it is written
  };
  enum class Head : uint8_t { kFresh = 0, kKept = 1 };
  struct Operation {
    enum class Kind : uint8_t { kFree, kAppend, kRead, kKeepRead, kKeepWrite, kFooter, kSync };
    Kind kind = Kind::kFree;
    BlobId id = 0;
    uint32_t segment = 0;
    uint32_t requests = 0;  // under way
    uint64_t bytes = 0;     // they should move
    uint64_t moved = 0;
    bool failed = false;
    bool erased = false;  // its domain was, meanwhile
    Place place;
    BlobTag tag = 0;
    DomainId domain{};
    BlobRead read;
  };
  // The segment being emptied, and how far.
  struct Collection {
    uint32_t victim = 0;  // 0: none
    size_t next = 0;
    uint64_t kept_pages = 0;
    bool waiting = false;  // for a read or write
    Place from;
    AlignedBuffer buffer;
  };

  SegmentLog(std::unique_ptr<Directory> directory, const SegmentLogOptions& options);

  // segment_recovery.cc
  absl::Status Recover(const Found& found);
  absl::Status ReadStoreFile(StoreFile* file, bool* fresh);
  absl::Status RecoverSegment(const Directory::File& file, const SegmentName& name,
                              const Found& found);
  std::vector<RecordSummary> ReadFooter(Segment* segment, uint64_t* pages);
  std::vector<RecordSummary> ScanHeaders(Segment* segment);
  bool ReadNow(int fd, uint64_t offset, std::span<std::byte> into);
  bool WriteFooterNow(Segment* segment);
  absl::Status WriteStoreFile(std::vector<Tombstone> tombstones);

  // segment_log.cc
  absl::StatusOr<BlobId> StartAppend(const RecordHeader& header, std::span<const std::byte> payload,
                                     BlobTag tag, Head head);
  absl::StatusOr<Segment*> HeadWithRoom(Head head, uint64_t pages);
  absl::StatusOr<Segment*> NewSegment();
  void Seal(Segment* segment);
  void WriteFooter(Segment* segment);
  int TakeOperation(Operation::Kind kind, Segment* segment);
  void Send(const IoRequest& request);
  void Finish(int index, std::vector<BlobEvent>* out);
  void FinishAppend(Operation& operation, Segment& segment, std::vector<BlobEvent>* out);
  void FinishRead(int index, Segment& segment, std::vector<BlobEvent>* out);
  absl::StatusOr<RecordHeader> HeaderOf(int index, const Segment& segment);
  absl::Status OpenFile(Segment* segment);
  Entry* Find(Place place);
  uint32_t PagesOf(const Segment& segment, const Entry& entry) const;
  void Forget(Segment* segment, Entry* entry);
  bool Erased(const DomainId& domain, uint32_t epoch, uint64_t serial) const;
  void MaybeRemove(Segment* segment);
  void Drain();

  // segment_collect.cc
  void Collect(std::vector<BlobEvent>* out);
  uint32_t ChooseVictim() const;
  bool MayKeep(uint64_t pages) const;
  void KeepNext(std::vector<BlobEvent>* out);
  void FinishKeepRead(int index, Segment& segment);
  void FinishKeepWrite(Operation& operation, Segment& segment, std::vector<BlobEvent>* out);
  void EndCollection(std::vector<BlobEvent>* out);

  // Constant after Open.
  const std::unique_ptr<Directory> directory_;
  const SegmentLogOptions options_;
  std::array<uint8_t, 16> store_{};
  uint32_t epoch_ = 0;

  uint64_t serial_ = 0;
  uint32_t last_segment_ = 0;
  BlobId last_id_ = 0;
  std::map<uint32_t, std::unique_ptr<Segment>> segments_;  // by number: the oldest first
  std::array<uint32_t, 2> heads_{};                        // open segments; 0: none
  absl::flat_hash_map<DomainId, Tombstone> tombstones_;
  std::vector<Operation> operations_;
  std::vector<int> free_operations_;
  AlignedBuffer pages_;  // a header page for each operation
  std::deque<IoRequest> outbox_;
  std::vector<IoResult> results_;
  Collection collection_;
  bool closing_ = false;
  uint32_t appends_ = 0;       // under way
  uint64_t append_bytes_ = 0;  // of these
  uint64_t held_bytes_ = 0;    // sum of file_bytes
  uint32_t errors_in_row_ = 0;
  uint32_t refusals_left_ = 0;  // before the disk is asked for space again
  BlobStats stats_;
};

}  // namespace weir::kv
