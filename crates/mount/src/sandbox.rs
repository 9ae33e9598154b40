//! The restrictions of a process that is about to read untrusted bytes.
//!
//! After [`restrict`] a process has the files that it opened before, memory, threads and the clock,
//! and nothing else: no path of the host opens (landlock), no program runs, no socket is made, no
//! other process is reached (seccomp), and root's powers are gone (capabilities). It holds for the
//! calling thread and those that it starts, so it comes before the first of them.

use std::collections::BTreeMap;
use std::path::Path;

use landlock::{
    ABI, Access, AccessFs, AccessNet, CompatLevel, Compatible, PathBeneath, PathFd, Ruleset,
    RulesetAttr, RulesetCreatedAttr, RulesetStatus, Scope,
};
use rustix::thread::{CapabilitySet, CapabilitySets};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Why a process could not be restricted.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// landlock refused its rules.
    #[error("landlock: {0}")]
    Landlock(#[from] landlock::RulesetError),
    /// The filter of system calls was not taken.
    #[error("seccomp: {0}")]
    Seccomp(String),
    /// Capabilities were not given up.
    #[error("capabilities: {0}")]
    Capabilities(#[from] rustix::io::Errno),
}

/// The requested restrictions that are in force.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Restricted {
    /// All of them.
    Fully,
    /// The kernel is too old for a part of landlock, or has none.
    WithoutAllOfLandlock,
}

/// Restricts this thread and those that it starts. `devices` are device files that may still be
/// opened, for reading and writing.
///
/// # Errors
/// The kernel has no seccomp, or one of the steps was refused.
pub fn restrict(devices: &[&Path]) -> Result<Restricted, SandboxError> {
    rustix::thread::set_no_new_privs(true)?;
    drop_capabilities()?;
    let restricted = restrict_paths(devices)?;
    filter_calls()?;
    Ok(restricted)
}

fn drop_capabilities() -> Result<(), SandboxError> {
    let none = CapabilitySet::empty();
    let sets = CapabilitySets { effective: none, permitted: none, inheritable: none };
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

fn restrict_paths(devices: &[&Path]) -> Result<Restricted, SandboxError> {
    // The newest that this code was written for; a kernel that has less gives what it has.
    let abi = ABI::V6;
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(abi))?
        .handle_access(AccessNet::from_all(abi))?
        .scope(Scope::from_all(abi))?
        .create()?;
    for device in devices {
        // A missing path cannot be opened in any case.
        if let Ok(file) = PathFd::new(device) {
            let access = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::IoctlDev;
            rules = rules.add_rule(PathBeneath::new(file, access))?;
        }
    }
    let status = rules.restrict_self()?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Restricted::Fully,
        RulesetStatus::PartiallyEnforced | RulesetStatus::NotEnforced => {
            Restricted::WithoutAllOfLandlock
        }
    })
}

/// Calls on open files and memory, on threads of this process, and on time.
const ALLOWED: &[libc::c_long] = &[
    libc::SYS_brk,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_fadvise64,
    libc::SYS_fallocate,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getpid,
    libc::SYS_getrandom,
    libc::SYS_gettid,
    libc::SYS_getuid,
    // On rings that were made before: they are restricted themselves.
    libc::SYS_io_uring_enter,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    // landlock decides which paths can be opened.
    libc::SYS_openat,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_recvfrom,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_yield,
    libc::SYS_sendto,
    libc::SYS_set_robust_list,
    libc::SYS_shutdown,
    libc::SYS_sigaltstack,
    libc::SYS_statx,
    libc::SYS_sync_file_range,
    libc::SYS_uname,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Calls of older architectures that newer ones do without.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[libc::c_long] =
    &[libc::SYS_poll, libc::SYS_newfstatat, libc::SYS_pipe2, libc::SYS_arch_prctl];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[libc::c_long] = &[libc::SYS_newfstatat, libc::SYS_pipe2];

/// `_IOR(229, 0, u32)`: another descriptor of a connection of FUSE.
const FUSE_DEV_IOC_CLONE: u64 = 0x8004_e500;
/// `_IO(0x12, 119)`, `_IO(0x12, 127)`, `_IO(0x12, 104)`, `_IOR(0x12, 114, size_t)`: discards and
/// sizes of block devices.
const BLKDISCARD: u64 = 0x1277;
const BLKZEROOUT: u64 = 0x127f;
const BLKSSZGET: u64 = 0x1268;
const BLKGETSIZE64: u64 = 0x8008_1272;
/// Of `enum io_uring_register_op`.
const IORING_REGISTER_ENABLE_RINGS: u64 = 12;
/// Of a terminal (asm-generic/ioctls.h): whether it is one, its settings, its size.
const TCGETS: u64 = 0x5401;
const TCSETS: u64 = 0x5402;
const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;
const TIOCGWINSZ: u64 = 0x5413;

fn filter_calls() -> Result<(), SandboxError> {
    let failed = |error: &dyn std::fmt::Display| SandboxError::Seccomp(error.to_string());
    let program = filter().map_err(|error| failed(&error))?;
    seccompiler::apply_filter(&program).map_err(|error| failed(&error))
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().chain(ALLOWED_HERE).map(|call| (*call, Vec::new())).collect();
    let equals = |argument, value| {
        let condition =
            SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)?;
        SeccompRule::new(vec![condition])
    };
    let requests = [
        FUSE_DEV_IOC_CLONE,
        BLKDISCARD,
        BLKZEROOUT,
        BLKSSZGET,
        BLKGETSIZE64,
        TCGETS,
        TCSETS,
        TCGETS2,
        TCSETS2,
        TIOCGWINSZ,
    ];
    let requests: Result<_, _> = requests.into_iter().map(|request| equals(1, request)).collect();
    rules.insert(libc::SYS_ioctl, requests?);
    // Threads only; clone3 hides its flags in memory, so that it is refused and the older call
    // taken.
    let thread = libc::CLONE_THREAD.cast_unsigned();
    let is_thread = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::MaskedEq(u64::from(thread)),
        u64::from(thread),
    )?;
    rules.insert(libc::SYS_clone, vec![SeccompRule::new(vec![is_thread])?]);
    // The name of a thread; names of memory, as the C library gives them.
    let names = [libc::PR_SET_NAME.cast_unsigned(), libc::PR_SET_VMA.cast_unsigned()];
    let names: Result<_, _> = names.into_iter().map(|name| equals(0, u64::from(name))).collect();
    rules.insert(libc::SYS_prctl, names?);
    // Rings that were made before are used from now on.
    rules.insert(libc::SYS_io_uring_register, vec![equals(1, IORING_REGISTER_ENABLE_RINGS)?]);
    // A thread sets the I/O priority of its writes (IOPRIO_WHO_PROCESS, 0).
    let [who, which] = [(0, 1), (1, 0)].map(|(argument, value)| {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value)
    });
    rules.insert(libc::SYS_ioprio_set, vec![SeccompRule::new(vec![who?, which?])?]);
    // A thread binds itself to a processor.
    rules.insert(libc::SYS_sched_setaffinity, vec![equals(0, 0)?]);
    // A thread of this process that ends it (abort).
    let own = u64::from(std::process::id());
    rules.insert(libc::SYS_tgkill, vec![equals(0, own)?]);
    // Unknown calls fail as on an older kernel: callers fall back.
    let refused = SeccompAction::Errno(libc::ENOSYS.cast_unsigned());
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, refused, SeccompAction::Allow, arch)?.try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Restrictions hold for a thread and cannot be taken back, so that each test has one of its
    /// own.
    fn restricted<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
        let run = move || {
            restrict(&[]).expect("the kernel has seccomp");
            test()
        };
        std::thread::spawn(run).join().expect("the restricted thread does not panic")
    }

    #[test]
    fn files_that_are_open_can_be_used_and_no_other_is_opened() {
        let mut file = std::fs::File::open("/proc/self/stat").expect("there");
        let (read, opened) = restricted(move || {
            let mut text = String::new();
            let read = std::io::Read::read_to_string(&mut file, &mut text);
            (read.map(|count| count > 0).ok(), std::fs::File::open("/etc/passwd").is_ok())
        });
        assert_eq!(read, Some(true));
        assert!(!opened, "a path of the host was opened");
    }

    #[test]
    fn no_program_runs_and_no_socket_is_made() {
        let (ran, socket) = restricted(|| {
            let ran = std::process::Command::new("/bin/true").status().is_ok();
            (ran, std::net::UdpSocket::bind("127.0.0.1:0").is_ok())
        });
        assert!(!ran, "a program was run");
        assert!(!socket, "a socket was made");
    }

    #[test]
    fn threads_start_and_end() {
        let sum = restricted(|| {
            let halves: Vec<_> =
                (1..=2).map(|half| std::thread::spawn(move || half * 21)).collect();
            halves.into_iter().map(|half| half.join().expect("no panic")).sum::<i32>()
        });
        assert_eq!(sum, 63);
    }
}
