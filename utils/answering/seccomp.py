"""A filter of system calls: what answers to a lab never need, and what breaks out of sandboxes is made of.

Denied calls fail with "operation not permitted" and nothing else happens. Namespaces, mounts, tracing of other
processes, kernel modules, key rings, BPF, io_uring and file handles are out; `clone3` reads as not existing, since a
filter cannot see its flags, and the C library then uses `clone`, whose namespace flags are checked.
Source: seccomp(2) and linux/filter.h. Known machines: x86_64 and aarch64; elsewhere there is no filter.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import struct

_X86_64 = (
    101, 310, 311, 272, 308, 165, 166, 155, 161, 246, 320, 321, 298, 323, 250, 248, 249, 175, 313, 176, 303, 304, 425,
    426, 427, 428, 429, 430, 431, 432, 433, 442, 438, 167, 168, 169, 163, 179, 312, 103, 164, 227, 159,
)  # fmt: skip
_AARCH64 = (
    117, 270, 271, 97, 268, 40, 39, 41, 51, 104, 294, 280, 241, 282, 219, 217, 218, 105, 273, 106, 264, 265, 425,
    426, 427, 428, 429, 430, 431, 432, 433, 442, 438, 224, 225, 142, 89, 60, 272, 116, 170, 112, 171,
)  # fmt: skip
# in this order: ptrace process_vm_readv process_vm_writev unshare setns mount umount2 pivot_root chroot kexec_load
# kexec_file_load bpf perf_event_open userfaultfd keyctl add_key request_key init_module finit_module delete_module
# name_to_handle_at open_by_handle_at io_uring_setup io_uring_enter io_uring_register open_tree move_mount fsopen
# fsconfig fsmount fspick mount_setattr pidfd_getfd swapon swapoff reboot acct quotactl kcmp syslog settimeofday
# clock_settime adjtimex
_MACHINES = {"x86_64": (0xC000003E, _X86_64, 56, 435), "aarch64": (0xC00000B7, _AARCH64, 220, 435)}
_NEW_NAMESPACES = 0x7E020080  # every CLONE_NEW* flag

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_NR_AT, _ARCH_AT, _FIRST_ARG_AT = 0, 4, 16
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2


def program(machine: str) -> bytes | None:
    """The filter for a machine, as an array of BPF instructions; None for one whose call numbers are not known here."""
    if machine not in _MACHINES:
        return None
    arch, denied, clone, clone3 = _MACHINES[machine]
    no, missing = _ERRNO | errno.EPERM, _ERRNO | errno.ENOSYS
    steps = [(_LOAD, 0, 0, _ARCH_AT), (_EQUAL, 1, 0, arch), (_RETURN, 0, 0, no), (_LOAD, 0, 0, _NR_AT)]
    if machine == "x86_64":  # the same calls again under the numbers of x32
        steps += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, no)]
    for number in denied:
        steps += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, no)]
    steps += [(_EQUAL, 0, 1, clone3), (_RETURN, 0, 0, missing), (_EQUAL, 1, 0, clone), (_RETURN, 0, 0, _ALLOW)]
    steps += [(_LOAD, 0, 0, _FIRST_ARG_AT), (_ANY_BIT, 0, 1, _NEW_NAMESPACES), (_RETURN, 0, 0, no)]
    steps += [(_RETURN, 0, 0, _ALLOW)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


class _Program(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("steps", ctypes.c_void_p)]


def install() -> bool:
    """Put the filter on this process and all it will start, for good; False where there is none for this machine.

    Needs no_new_privs. Raises OSError where the kernel refuses.
    """
    code = program(platform.machine())
    if code is None:
        return False
    steps = ctypes.create_string_buffer(code, len(code))
    whole = _Program(len(code) // 8, ctypes.cast(steps, ctypes.c_void_p))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(whole), 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"the filter of system calls was refused: {errno.errorcode.get(number, number)}")
    return True
