// SPDX-License-Identifier: Apache-2.0
//
// How a kernel's plain loads and stores become known: its file is compiled with -fsanitize=thread
// and linked without that runtime, and the calls that the compiler put before each access end here.
// Accesses outside shared memory and the device's arena (stacks, arguments, tables) are nobody's
// concern. Must stay safe off a fiber too: inline functions of a kernel's file may be the linker's
// choice for the whole program.
#include <cstring>

#include "kernels/simt/machine.h"

namespace weir::kernels::simt {
namespace {

void OnAccess(const void* p, size_t bytes, bool write, bool aligned, const void* pc, Site at = {}) {
  Fiber* self = Self();
  if (self == nullptr) return;
  const Options& options = g_machine->options;
  if (!options.check && !options.count) return;
  const bool shared = InWindow(*self->block, p);
  const bool global = !shared && options.memory != nullptr && options.memory->shadow().Contains(p);
  if (!shared && !global) return;
  const Origin origin{write ? "store" : "load", at, at.line != 0 ? nullptr : pc};
  if (aligned && reinterpret_cast<uintptr_t>(p) % bytes != 0) {
    g_machine->report.Add(FindingKind::kMisaligned, origin, "is not on its own size");
  }
  if (options.count) {
    self->block->traffic.Note(shared ? Space::kShared : Space::kGlobal, pc, self->thread,
                              reinterpret_cast<uintptr_t>(p), bytes, write,
                              &g_machine->report.counters);
  }
  CheckAccess(self, p, bytes, write ? Access::kWrite : Access::kRead, origin);
}

}  // namespace

// Never inlined: the address of the call tells one access from another of its line.
[[gnu::noinline]] void ReadVector(void* to, const void* from, size_t bytes, Site at) {
  OnAccess(from, bytes, false, true, __builtin_return_address(0), at);
  std::memcpy(to, from, bytes);
}

[[gnu::noinline]] void WriteVector(void* to, const void* from, size_t bytes, Site at) {
  OnAccess(to, bytes, true, true, __builtin_return_address(0), at);
  std::memcpy(to, from, bytes);
}

}  // namespace weir::kernels::simt

// Names and signatures are the compiler's.
// NOLINTBEGIN
#define WEIR_SIMT_HOOK(size)                                                           \
  void __tsan_read##size(void* p) {                                                    \
    weir::kernels::simt::OnAccess(p, size, false, true, __builtin_return_address(0));  \
  }                                                                                    \
  void __tsan_write##size(void* p) {                                                   \
    weir::kernels::simt::OnAccess(p, size, true, true, __builtin_return_address(0));   \
  }                                                                                    \
  void __tsan_unaligned_read##size(void* p) {                                          \
    weir::kernels::simt::OnAccess(p, size, false, false, __builtin_return_address(0)); \
  }                                                                                    \
  void __tsan_unaligned_write##size(void* p) {                                         \
    weir::kernels::simt::OnAccess(p, size, true, false, __builtin_return_address(0));  \
  }

extern "C" {
WEIR_SIMT_HOOK(1)
WEIR_SIMT_HOOK(2)
WEIR_SIMT_HOOK(4)
WEIR_SIMT_HOOK(8)
WEIR_SIMT_HOOK(16)

void __tsan_read_range(void* p, unsigned long bytes) {
  weir::kernels::simt::OnAccess(p, bytes, false, false, __builtin_return_address(0));
}
void __tsan_write_range(void* p, unsigned long bytes) {
  weir::kernels::simt::OnAccess(p, bytes, true, false, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}

// Kernels reach atomics through the emulator; these are for the C++ library's own inline code.
#define WEIR_SIMT_ATOMIC(bits, type)                                                           \
  type __tsan_atomic##bits##_load(const volatile type* p, int) {                               \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
  }                                                                                            \
  void __tsan_atomic##bits##_store(volatile type* p, type value, int) {                        \
    __atomic_store_n(p, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                            \
  type __tsan_atomic##bits##_exchange(volatile type* p, type value, int) {                     \
    return __atomic_exchange_n(p, value, __ATOMIC_SEQ_CST);                                    \
  }                                                                                            \
  type __tsan_atomic##bits##_fetch_add(volatile type* p, type value, int) {                    \
    return __atomic_fetch_add(p, value, __ATOMIC_SEQ_CST);                                     \
  }                                                                                            \
  type __tsan_atomic##bits##_fetch_sub(volatile type* p, type value, int) {                    \
    return __atomic_fetch_sub(p, value, __ATOMIC_SEQ_CST);                                     \
  }                                                                                            \
  type __tsan_atomic##bits##_compare_exchange_val(volatile type* p, type was, type value, int, \
                                                  int) {                                       \
    __atomic_compare_exchange_n(p, &was, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);    \
    return was;                                                                                \
  }
WEIR_SIMT_ATOMIC(8, uint8_t)
WEIR_SIMT_ATOMIC(32, uint32_t)
WEIR_SIMT_ATOMIC(64, uint64_t)
}
// NOLINTEND
