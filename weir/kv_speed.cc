// SPDX-License-Identifier: Apache-2.0
//
// Measures of the store, each beside what bounds it, in turn and as medians of five, since a shared
// machine's speed changes under one.
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>

#include "base/runtime/clock.h"
#include "base/stdx/bytes.h"
#include "base/stdx/hash.h"
#include "base/stdx/random.h"
#include "kvstore/blob/segment_format.h"
#include "kvstore/key/namespace.h"
#include "kvstore/node/tiered_store.h"
#include "weir/kv_bench.h"

namespace weir {
namespace {

// V4.1's record: 32 blocks of 128 tokens, encoder and decoder part.
constexpr uint32_t kEncoderBytes = 534 * 128;
constexpr uint32_t kDecoderBytes = 356 * 128;

kv::RecordShape RecordShape() {
  kv::RecordShape shape;
  shape.blocks = 32;
  shape.sections = 2;
  shape.section[0] = {1, kEncoderBytes};
  shape.section[1] = {2, kDecoderBytes};
  return shape;
}

double SecondsOf(const std::function<void()>& work) {
  const Instant begin = Now();
  work();
  return Seconds(Now() - begin);
}

// Of this thread: what other processes take of the machine does not count.
double CpuSecondsOf(const std::function<void()>& work) {
  const auto now = [] {
    timespec at;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &at);
    return static_cast<double>(at.tv_sec) + 1e-9 * static_cast<double>(at.tv_nsec);
  };
  const double begin = now();
  work();
  return now() - begin;
}

using Timer = double (*)(const std::function<void()>&);

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The median over five turns of ours / theirs; theirs runs before and after in turn.
double Ratio(Timer timer, const std::function<void()>& ours, const std::function<void()>& theirs) {
  std::vector<double> ratios;
  for (int i = 0; i < 5; ++i) {
    double a = 0, b = 0;
    if (i % 2 == 0) {
      a = timer(ours);
      b = timer(theirs);
    } else {
      b = timer(theirs);
      a = timer(ours);
    }
    ratios.push_back(a / b);
  }
  return Median(ratios);
}

uint32_t g_sink = 0;  // keeps a compiler from leaving checksums out

struct HostFigures {
  double put_ratio = 0;
  double get_ratio = 0;
  double handle_micros = 0;
};

HostFigures MeasureHost(bool quick) {
  const int records = quick ? 12 : 40;
  kv::RecordHeader header;
  header.shape = RecordShape();
  const uint64_t bytes = header.shape.PayloadBytes();
  kv::AlignedBuffer arena(bytes * static_cast<uint64_t>(records));
  kv::AlignedBuffer plain(bytes * static_cast<uint64_t>(records));
  kv::AlignedBuffer source(bytes * 4);
  std::memset(source.data(), 7, source.bytes());
  kv::HostTier tier(arena.span(), arena.bytes());
  std::vector<kv::RunId> gone;
  kv::RunId next = 1;
  const auto from = [&](int i) {
    return source.span().subspan(static_cast<uint64_t>(i % 4) * bytes, bytes);
  };
  const auto put = [&] {
    for (int i = 0; i < records; ++i) {
      tier.Put(header, next++, from(i), kv::HostTier::Dirty::kNo, &gone).IgnoreError();
    }
  };
  const auto copy_and_sum = [&](const std::byte* input, std::byte* output) {
    std::memcpy(output, input, bytes);
    g_sink += Crc32c({output, bytes});
  };
  const auto baseline = [&] {
    for (int i = 0; i < records; ++i)
      copy_and_sum(from(i).data(), plain.data() + static_cast<uint64_t>(i) * bytes);
  };
  put();  // touches every page of both before it counts
  baseline();
  HostFigures figures;
  figures.put_ratio = Ratio(&CpuSecondsOf, put, baseline);
  const kv::RunId first = next - static_cast<kv::RunId>(records);
  const auto get = [&] {
    for (int i = 0; i < records; ++i) {
      const kv::HostRef ref = tier.Get(first + static_cast<kv::RunId>(i));
      const std::span<std::byte> out =
          plain.span().subspan(static_cast<uint64_t>(i) * bytes, bytes);
      for (uint32_t s = 0; s < 2; ++s) {
        const uint64_t length = uint64_t{header.shape.section[s].block_bytes} * 32;
        tier.CopyOut(ref, s, 0, 32, out.subspan(header.shape.SectionAt(s), length)).IgnoreError();
      }
    }
  };
  const auto copy_arena = [&] {
    for (int i = 0; i < records; ++i) {
      copy_and_sum(arena.data() + static_cast<uint64_t>(i) * bytes,
                   plain.data() + static_cast<uint64_t>(i) * bytes);
    }
  };
  figures.get_ratio = Ratio(&CpuSecondsOf, get, copy_arena);
  constexpr int kHandles = 100000;
  std::vector<double> micros;
  for (int turn = 0; turn < 5; ++turn) {
    micros.push_back(1e6 / kHandles * CpuSecondsOf([&] {
                       for (int i = 0; i < kHandles; ++i) {
                         const kv::HostRef ref =
                             tier.Get(first + static_cast<kv::RunId>(i % records));
                         g_sink += static_cast<uint32_t>(ref.payload().size());
                       }
                     }));
  }
  figures.handle_micros = Median(micros);
  return figures;
}

struct DiskFigures {
  double write_share = 0;  // of what the same requests to a plain file reach
  double read_share = 0;
};

constexpr size_t kDepth = 8;

// The same sizes and depth without a store: requests to one preallocated file.
void PlainRequests(kv::Directory* directory, int fd, kv::IoRequest::Kind kind, int records,
                   uint64_t bytes, std::span<std::byte> buffers) {
  std::vector<kv::IoResult> done;
  int sent = 0;
  while (done.size() < static_cast<size_t>(records)) {
    while (sent < records && static_cast<size_t>(sent) < done.size() + kDepth) {
      kv::IoRequest request{
          .kind = kind, .fd = fd, .offset = static_cast<uint64_t>(sent) * bytes, .part_count = 1};
      request.parts[0] = {buffers.data() + (static_cast<uint64_t>(sent) % kDepth) * bytes, bytes};
      if (!directory->Submit(request)) break;
      ++sent;
    }
    directory->Poll(kv::IoWait::kForOne, &done);
  }
}

// Posts operations 0, 1, … of a log, some at once, until all are done; places of records go to
// *places.
void Drive(kv::SegmentLog* log, int records, std::vector<kv::Place>* places,
           const std::function<bool(size_t)>& post) {
  const auto all = static_cast<size_t>(records);
  std::vector<kv::BlobEvent> events;
  size_t sent = 0;
  size_t done = 0;
  while (done < all) {
    while (sent < all && sent < done + kDepth && post(sent)) ++sent;
    if (sent == done) return;  // refused with nothing under way, so for good
    events.clear();
    log->Poll(kv::IoWait::kForOne, &events);
    for (const kv::BlobEvent& event : events) {
      const bool appended = event.kind == kv::BlobEvent::Kind::kAppended;
      if (appended || event.kind == kv::BlobEvent::Kind::kRead) ++done;
      if (appended && event.status.ok()) places->push_back(event.place);
    }
  }
}

absl::StatusOr<DiskFigures> MeasureDisk(const std::string& dir, bool quick) {
  const int records = quick ? 24 : 96;
  kv::RecordHeader header;
  header.shape = RecordShape();
  const uint64_t bytes = header.shape.RecordBytes();
  kv::AlignedBuffer buffers(bytes * kDepth);
  std::memset(buffers.data(), 3, buffers.bytes());
  std::vector<kv::RecordHeader> sealed(kDepth, header);
  for (size_t i = 0; i < kDepth; ++i) {
    kv::SealPayload(buffers.span().subspan(i * bytes, header.shape.PayloadBytes()), &sealed[i]);
  }
  WEIR_ASSIGN(std::unique_ptr<kv::Directory> plain, kv::OpenDirectory(dir + "/plain", {}));
  WEIR_ASSIGN(const int fd, plain->Open("file", kv::Directory::Mode::kCreate));
  WEIR_TRY(plain->Allocate(fd, bytes * static_cast<uint64_t>(records)));
  WEIR_ASSIGN(std::unique_ptr<kv::Directory> directory, kv::OpenDirectory(dir + "/store", {}));
  WEIR_ASSIGN(std::unique_ptr<kv::SegmentLog> log,
              kv::SegmentLog::Open(std::move(directory), {.capacity_bytes = 1ull << 40},
                                   [](const kv::FoundRecord&) { return 0u; }));
  std::vector<kv::Place> places;
  const auto write = [&] {
    places.clear();
    Drive(log.get(), records, &places, [&](size_t i) {
      const size_t slot = i % kDepth;
      return log
          ->Append(sealed[slot], buffers.span().subspan(slot * bytes, header.shape.PayloadBytes()),
                   0)
          .ok();
    });
  };
  const auto read = [&] {
    Drive(log.get(), records, &places, [&](size_t i) {
      if (i >= places.size()) return false;
      kv::BlobRead one{
          .place = places[i],
          .shape = header.shape,
          .first = 0,
          .count = 32,
          .sections = 3,
          .last = header.last(),
          .into = buffers.span().subspan(i % kDepth * bytes, header.shape.PayloadBytes())};
      return log->Read(one).ok();
    });
  };
  DiskFigures figures;
  write();
  figures.write_share =
      1 / Ratio(&SecondsOf, write, [&] {
        PlainRequests(plain.get(), fd, kv::IoRequest::Kind::kWrite, records, bytes, buffers.span());
      });
  figures.read_share =
      1 / Ratio(&SecondsOf, read, [&] {
        PlainRequests(plain.get(), fd, kv::IoRequest::Kind::kRead, records, bytes, buffers.span());
      });
  plain->Close(fd);
  return figures;
}

// Milliseconds to find a prompt of a million tokens, hashing included.
double MeasureLookup() {
  std::vector<TokenId> tokens(1'000'000);
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<TokenId>(RandomBits(5, 5, i) % 129280);
  const kv::BlockKey root = kv::DomainRoot("s", {.account = "a"}, {.model = "m"});
  kv::RunIndex index(100'000);
  kv::KeyChain chain(root, 128);
  chain.Append(tokens);
  kv::RunId parent = 0;
  const std::span<const kv::BlockKey> keys = chain.keys();
  for (size_t at = 0; at < keys.size(); at += 32) {
    const std::span<const kv::BlockKey> some =
        keys.subspan(at, std::min<size_t>(32, keys.size() - at));
    std::vector<uint16_t> prints;
    for (const kv::BlockKey& key : some) prints.push_back(key.fingerprint());
    parent = index
                 .Insert({.parent = (at == 0 ? root : keys[at - 1]).index(),
                          .last = some.back().index(),
                          .fingerprints = prints,
                          .parent_run = parent})
                 .value_or(0);
    index.SetTier(parent, kv::RunIndex::kHost);
  }
  std::vector<double> millis;
  for (int i = 0; i < 5; ++i) {
    millis.push_back(1e3 * CpuSecondsOf([&] {
                       kv::KeyChain again(root, 128);
                       again.Append(tokens);
                       std::vector<kv::RunIndex::Hit> hits;
                       g_sink += index.Match(root, again.keys(), kv::RunIndex::Want::kAny, &hits);
                     }));
  }
  return Median(millis);
}

std::string FolderFor(const KvArgs& args, const char* what) {
  const std::string parent =
      args.dir.empty() ? std::filesystem::temp_directory_path().string() : args.dir;
  return parent + "/weir-kv-" + what + "-" + std::to_string(getpid());
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "weir kv bench: %s\n", std::string(StdView(status.message())).c_str());
  return 1;
}

// A disk tier as a long life leaves it, without its payloads: full segments with their footers.
absl::Status MakeSegments(const std::string& dir, uint32_t segments, uint32_t records_in_each) {
  WEIR_ASSIGN(std::unique_ptr<kv::Directory> directory, kv::OpenDirectory(dir, {}));
  kv::StoreFile file;
  file.store[0] = 1;
  file.epoch = 1;
  WEIR_TRY(directory->Replace(kv::kStoreFile, kv::EncodeStoreFile(file)));
  const uint64_t pages = RecordShape().RecordBytes() / kv::kRecordPage;
  std::vector<kv::RecordSummary> records(records_in_each);
  kv::AlignedBuffer footer(uint64_t{kv::FooterPages(records.size())} * kv::kRecordPage);
  for (uint32_t segment = 1; segment <= segments; ++segment) {
    for (uint32_t i = 0; i < records_in_each; ++i) {
      kv::RecordSummary& summary = records[i];
      const uint64_t id = uint64_t{segment} * records_in_each + i;
      summary.pages = static_cast<uint32_t>(pages);
      summary.serial = id;
      summary.record.place.page = static_cast<uint32_t>(i * pages);
      summary.record.blocks = 32;
      summary.record.parent = {RandomBits(1, 1, id), 1};
      summary.record.last = {RandomBits(1, 2, id), 1};
    }
    const kv::SegmentName name{1, segment};
    kv::EncodeFooter(file.store, name, records, footer.span());
    WEIR_ASSIGN(const int fd, directory->Open(kv::NameOf(name), kv::Directory::Mode::kCreate));
    const uint64_t at = records_in_each * pages * kv::kRecordPage;
    WEIR_TRY(directory->Truncate(fd, at + footer.bytes()));
    kv::IoRequest request{
        .kind = kv::IoRequest::Kind::kWrite, .fd = fd, .offset = at, .part_count = 1};
    request.parts[0] = {footer.data(), footer.bytes()};
    std::vector<kv::IoResult> done;
    if (directory->Submit(request)) directory->Poll(kv::IoWait::kForOne, &done);
    directory->Close(fd);
  }
  return absl::OkStatus();
}

}  // namespace

int RunKvSpeed(const KvArgs& args) {
  const HostFigures host = MeasureHost(args.quick);
  const std::string dir = FolderFor(args, "speed");
  const absl::StatusOr<DiskFigures> disk = MeasureDisk(dir, args.quick);
  std::filesystem::remove_all(dir);
  if (!disk.ok()) return Fail(disk.status());
  const double lookup = MeasureLookup();
  std::printf(
      args.json
          ? "{\"put_ratio\":%.3f,\"get_ratio\":%.3f,\"handle_us\":%.4f,\"disk_write_share\":%.3f,"
            "\"disk_read_share\":%.3f,\"lookup_ms\":%.3f}\n"
          : "host tier, record of 3.5 MiB, times as multiples of copy and checksum\n"
            "  put        %6.3f\n  get        %6.3f\n  by handle  %6.4f us\n"
            "disk tier, share of the same requests to a plain file\n"
            "  write      %6.3f\n  read       %6.3f\n"
            "lookup of 1,000,000 tokens, hashing included  %.2f ms\n",
      host.put_ratio, host.get_ratio, host.handle_micros, disk->write_share, disk->read_share,
      lookup);
  return 0;
}

int RunKvRestart(const KvArgs& args) {
  // 256 MiB segments of 73 records; 3.84 TB of them are 14,305.
  const uint32_t segments = args.quick ? 512 : 4096;
  constexpr uint32_t kRecords = 73;
  const std::string dir = FolderFor(args, "restart");
  const absl::Status made = MakeSegments(dir, segments, kRecords);
  if (!made.ok()) return Fail(made);
  const uint32_t runs = segments * kRecords;
  kv::TieredOptions options{.runs_max = runs, .disk_path = dir};
  options.disk.capacity_bytes = 1ull << 46;
  std::vector<double> seconds, cpu_seconds;
  kv::TieredStats stats;
  for (int i = 0; i < 5; ++i) {
    absl::StatusOr<std::unique_ptr<kv::TieredStore>> store = absl::UnknownError("");
    seconds.push_back(SecondsOf([&] {
      cpu_seconds.push_back(CpuSecondsOf([&] { store = kv::TieredStore::Open(options); }));
    }));
    if (!store.ok()) return Fail(store.status());
    stats = (*store)->stats();
  }
  std::filesystem::remove_all(dir);
  const double terabytes = static_cast<double>(segments) * 256 * kMiB / 1e12;
  const double per_run = static_cast<double>(stats.index_bytes) / runs - 2 * 32;
  const double node_mb = static_cast<double>(stats.index_bytes) / terabytes * 3.84 / 1e6;
  std::printf(
      args.json
          ? "{\"runs\":%llu,\"bytes_per_run\":%.2f,\"node_mb\":%.1f,\"restart_s_per_tb\":%.3f,"
            "\"restart_cpu_s_per_tb\":%.3f}\n"
          : "%llu runs of 32 blocks\nindex: %.1f bytes a run beside 2 a block; %.0f MB for 3.84 "
            "TB\n"
            "restart: %.3f s a TB, %.3f s of it CPU\n",
      static_cast<unsigned long long>(stats.runs), per_run, node_mb, Median(seconds) / terabytes,
      Median(cpu_seconds) / terabytes);
  return stats.runs == runs ? 0 : 1;
}

}  // namespace weir
