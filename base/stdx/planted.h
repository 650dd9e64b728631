// SPDX-License-Identifier: Apache-2.0
//
// Planted bugs: known mistakes that tests arm on purpose, to prove that the swarm and the
// acceptance scripts would notice them. At most one is armed per process, by `--planted=N` or
// WEIR_PLANTED through base/config, before threads start; a process with one armed says so loudly.
// Reading is a plain load. Built without WEIR_PLANTED every hook is the constant false.
#pragma once

namespace weir {

enum class Planted : int {
  kNone = 0,
  kSkipWriteFloor = 1,        // replay rows write block KV below the floor
  kForgetEpochCheck = 2,      // messages of an older attempt are accepted
  kDoubleToken = 3,           // one token is sent twice after a failover
  kLeakPageOnAbort = 4,       // an aborted sequence keeps one page
  kStaleBlockTable = 5,       // a sequence keeps a page that it gave back
  kLostCarry = 6,             // the carry is not handed over
  kTailStartMoves = 7,        // a later attempt takes its own tail start
  kCommitRejectedDraft = 8,   // one draft more than accepted is committed
  kChunkLost = 9,             // one offered block of a hand-over is never fetched
  kLeaseNeverExpires = 10,    // reservations of a lost router stay
  kWrongToken = 11,           // acceptance self-test: one answer differs
  kSlowStep = 12,             // acceptance self-test: the step loop does needless work
  kDropFinish = 13,           // acceptance self-test: an answer ends without its finish
  kReadyLies = 14,            // acceptance self-test: readiness stays 200 while draining
  kAcceptBadField = 15,       // acceptance self-test: a bad field is let through
  kLeakMemory = 16,           // acceptance self-test: memory grows with each token
  kMemoryError = 17,          // acceptance self-test: the sanitizers' canary errs
  kBatchChangesRow = 18,      // acceptance self-test: a row's bits depend on its batch
  kNoLogitBias = 19,          // acceptance self-test: logit biases are left out
  kShortWindow = 20,          // acceptance self-test: V4.1's windows are one row short
  kTwoDigitPieces = 30,       // acceptance self-test: the pre-tokenizer cuts digits by two
  kSlowTokenizer = 31,        // acceptance self-test: BPE as defined, without tables
  kForgetBorder = 32,         // acceptance self-test: a marker that overlaps a failed one is missed
  kWrongFigure = 40,          // acceptance self-test: inspect reports one byte of KV too many
  kMapTwice = 41,             // acceptance self-test: a checkpoint's files are mapped twice
  kServeUnchecked = 50,       // acceptance self-test: stored blocks are not compared with key and checksum
  kEraseForgets = 51,         // acceptance self-test: an erased domain comes back with a restart
  kEvictParents = 52,         // acceptance self-test: the head of a chain is evicted first
  kCopyTwice = 53,            // acceptance self-test: the host tier copies every block twice
  kFatIndex = 54,             // acceptance self-test: a run takes twice the memory in the index
  kBillsBlockBegun = 60,      // acceptance self-test: the block in which a prefix ends is billed too
  kStateOfOthers = 61,        // acceptance self-test: a window state is taken whatever its tokens
  kWrongAttention = 80,       // acceptance self-test: the emulated kernel scales scores wrongly
  kBlindChecker = 81,         // acceptance self-test: the emulator looks at no access
  kFewRegisters = 82,         // acceptance self-test: kernels are compiled with too few registers
};

extern int g_planted;  // written once before threads start

#ifdef WEIR_PLANTED
inline bool IsPlanted(Planted which) {
  return __builtin_expect(g_planted == static_cast<int>(which), 0);
}
#else
constexpr bool IsPlanted(Planted) { return false; }
#endif

}  // namespace weir
