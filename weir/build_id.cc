// SPDX-License-Identifier: Apache-2.0
#include "weir/build_id.h"

#include <elf.h>
#include <link.h>

#include <cstring>

namespace weir {
namespace {

constexpr size_t Padded(size_t bytes) { return (bytes + 3) & ~size_t{3}; }

// Notes lie one behind the other: a header, a name and what it says, each padded to 4 bytes.
bool FindBuildId(const char* at, size_t bytes, std::string* id) {
  while (bytes >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) note;
    std::memcpy(&note, at, sizeof note);
    const size_t head = sizeof note + Padded(note.n_namesz);
    const size_t whole = head + Padded(note.n_descsz);
    if (whole > bytes) return false;
    if (note.n_type == NT_GNU_BUILD_ID) {
      constexpr char kDigits[] = "0123456789abcdef";
      for (size_t i = 0; i < note.n_descsz; ++i) {
        const auto byte = static_cast<unsigned char>(at[head + i]);
        id->push_back(kDigits[byte >> 4]);
        id->push_back(kDigits[byte & 15]);
      }
      return true;
    }
    at += whole;
    bytes -= whole;
  }
  return false;
}

// The first object is the program itself.
int VisitProgram(dl_phdr_info* info, size_t, void* id) {
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr)& header = info->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* notes = reinterpret_cast<const char*>(info->dlpi_addr + header.p_vaddr);
    if (FindBuildId(notes, header.p_memsz, static_cast<std::string*>(id))) break;
  }
  return 1;
}

}  // namespace

std::string BuildId() {
  std::string id;
  dl_iterate_phdr(VisitProgram, &id);
  return id.empty() ? std::string("unknown") : id;
}

}  // namespace weir
