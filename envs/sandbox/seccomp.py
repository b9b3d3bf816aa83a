"""A seccomp filter: system calls that no program of a sandbox needs, and that have opened sandboxes before, fail.

It is the kernel's classic BPF (linux/filter.h, linux/seccomp.h): `struct sock_filter {u16 code; u8 jt, jf; u32 k}` in
the machine's byte order, run on `struct seccomp_data {int nr; u32 arch; ...}`.
"""

from __future__ import annotations

import platform
import struct

__all__ = ["seccomp_filter"]

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
# name: number on x86_64, on aarch64
_REFUSED = {
    **{"mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "swapon": (167, 224), "swapoff": (168, 225)},
    **{"open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431)},
    **{"fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442)},
    **{"unshare": (272, 97), "setns": (308, 268), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265)},
    **{"ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272)},
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219), "personality": (135, 92)},
    **{"bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "syslog": (103, 116)},
    **{"io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427)},
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "reboot": (169, 142)},
    **{"kexec_load": (246, 104), "kexec_file_load": (320, 294), "acct": (163, 89), "quotactl": (179, 60)},
    # memory that belongs to no process and no file system, so that nothing bounds it
    **{"memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194)},
}
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _EPERM, _KILL = 0x7FFF0000, 0x00050001, 0x80000000
_X32 = 0x40000000  # the second numbering of system calls on x86_64


def seccomp_filter() -> bytes | None:
    """The filter for this machine as bwrap's `--seccomp` reads it; None where its architecture is not known."""
    if platform.machine() not in _ARCHITECTURES:
        return None
    name, column = _ARCHITECTURES[platform.machine()]
    numbers = [each[column] for each in _REFUSED.values()]
    steps = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, name), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    steps += [(_AT_LEAST, len(numbers) + 1, 0, _X32)]
    steps += [(_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)]
    steps += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _EPERM)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)
