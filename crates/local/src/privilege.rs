//! The privilege to create network namespaces: the capabilities of perfrun or, without them, those of a user
//! namespace in which the caller is root.

use std::fs;
use std::io;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{WaitOptions, getegid, geteuid, waitpid};
use rustix::thread::{CapabilitySet, UnshareFlags, capabilities, unshare_unsafe};
use strum::FromRepr;
use thiserror::Error;

/// The source of the privilege to create network namespaces.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Privilege {
    /// The capabilities perfrun was started with: root, or a container with SYS_ADMIN and NET_ADMIN.
    Capabilities,
    /// A user namespace that maps the caller to root. Files written still belong to the caller.
    UserNamespace,
}

/// Why this process cannot create network namespaces.
#[derive(Debug, Error)]
pub enum Error {
    /// The attempt of a child process was refused. This process is unchanged.
    #[error("unable to create network namespaces: {reason}")]
    MakeNamespace {
        /// The cause, with what the user can change.
        reason: RefusalCause,
        /// The kernel's error.
        source: io::Error,
    },
    /// The attempt succeeded in a child process, but not in this one.
    #[error("failed to enter a user namespace (it must happen before the first thread is started)")]
    EnterUserNamespace {
        /// The kernel's error.
        source: io::Error,
    },
    /// The child process for the attempt could not run.
    #[error("failed to determine whether namespaces are permitted")]
    ForkChild {
        /// The kernel's error.
        source: io::Error,
    },
}

/// A cause of refusal. Its text says what to change.
#[derive(Clone, Copy, Debug, Eq, Error, PartialEq)]
pub enum RefusalCause {
    /// `CONFIG_USER_NS` is off.
    #[error("this kernel has no user namespaces")]
    NoUserNamespaces,
    /// `CONFIG_NET_NS` is off.
    #[error("this kernel has no network namespaces")]
    NoNetworkNamespaces,
    /// The kernels of Debian and Arch have a switch for user namespaces.
    #[error(
        "only root may create user namespaces here (sysctl kernel.unprivileged_userns_clone=1 permits them)"
    )]
    UnprivilegedOff,
    /// The limit of user namespaces is reached, or zero.
    #[error("the limit of user namespaces is reached (sysctl user.max_user_namespaces is {0})")]
    UserNamespaceLimit(u64),
    /// The limit of network namespaces is reached, or zero.
    #[error("the limit of network namespaces is reached (sysctl user.max_net_namespaces is {0})")]
    NetNamespaceLimit(u64),
    /// On Ubuntu 23.10 and later, a user namespace has no capabilities unless a profile grants them.
    #[error(
        "AppArmor removes the capabilities from user namespaces \
         (sysctl kernel.apparmor_restrict_unprivileged_userns=0 permits them)"
    )]
    AppArmor,
    /// The default profiles of Docker and Kubernetes refuse `unshare` without CAP_SYS_ADMIN.
    #[error(
        "a seccomp filter, typical of containers, forbids it (the capabilities SYS_ADMIN and NET_ADMIN permit it)"
    )]
    Seccomp,
    /// Any other cause: a security module, a chroot, or namespaces nested too deeply.
    #[error("the kernel refused to {0}")]
    Other(Step),
}

/// A step towards a network namespace. The kernel can refuse each of them.
#[derive(Clone, Copy, Debug, Eq, FromRepr, PartialEq, strum::Display)]
#[repr(u8)]
pub enum Step {
    /// `unshare(CLONE_NEWUSER)`.
    #[strum(to_string = "create a user namespace")]
    UnshareUser = 1,
    /// Writing `deny` to `/proc/self/setgroups`, without which an ordinary user may not map groups.
    #[strum(to_string = "give up setgroups in the user namespace")]
    DenySetgroups,
    /// Writing `/proc/self/uid_map`.
    #[strum(to_string = "map the user")]
    MapUser,
    /// Writing `/proc/self/gid_map`.
    #[strum(to_string = "map the group")]
    MapGroup,
    /// `unshare(CLONE_NEWNET)`.
    #[strum(to_string = "create a network namespace")]
    UnshareNet,
}

/// Makes sure that this process can create network namespaces. Enters a user namespace if necessary.
///
/// Call it first in `main`: a process with more than one thread cannot change its user namespace. After an
/// error the process is unchanged and can continue without namespaces.
pub fn acquire() -> Result<Privilege, Error> {
    if has_capabilities() && try_in_child(unshare_net)?.is_ok() {
        return Ok(Privilege::Capabilities);
    }
    let maps = Maps::to_root();
    let attempt = try_in_child(|| {
        enter_user_namespace(&maps)?;
        unshare_net()
    })?;
    if let Err(refused) = attempt {
        return Err(Error::MakeNamespace {
            reason: diagnose(refused, &KernelLimits::read()),
            source: refused.errno.into(),
        });
    }
    enter_user_namespace(&maps).map_err(|failure| Error::EnterUserNamespace {
        source: failure.errno.into(),
    })?;
    Ok(Privilege::UserNamespace)
}

/// A step that the kernel refused.
#[derive(Clone, Copy, Debug)]
struct Refused {
    step: Step,
    errno: Errno,
}

impl Step {
    fn refused(self) -> impl Fn(Errno) -> Refused {
        move |errno| Refused { step: self, errno }
    }
}

/// The contents of uid_map and gid_map, prepared before the fork: a forked child must not allocate.
struct Maps {
    user: String,
    group: String,
}

impl Maps {
    fn to_root() -> Self {
        Self {
            user: format!("0 {} 1\n", geteuid().as_raw()),
            group: format!("0 {} 1\n", getegid().as_raw()),
        }
    }
}

fn has_capabilities() -> bool {
    capabilities(None).is_ok_and(|sets| {
        sets.effective
            .contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN)
    })
}

/// Makes only system calls, so that it can run between fork and exit.
fn unshare_net() -> Result<(), Refused> {
    // SAFETY: only the network namespace changes; the file descriptor table stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }.map_err(Step::UnshareNet.refused())
}

/// Makes only system calls, so that it can run between fork and exit.
fn enter_user_namespace(maps: &Maps) -> Result<(), Refused> {
    // SAFETY: only the user namespace changes; the file descriptor table stays shared.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }.map_err(Step::UnshareUser.refused())?;
    write(c"/proc/self/setgroups", "deny").map_err(Step::DenySetgroups.refused())?;
    write(c"/proc/self/uid_map", &maps.user).map_err(Step::MapUser.refused())?;
    write(c"/proc/self/gid_map", &maps.group).map_err(Step::MapGroup.refused())
}

/// The kernel accepts each of these files in exactly one write.
fn write(path: &std::ffi::CStr, text: &str) -> Result<(), Errno> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, text.as_bytes()).map(drop)
}

/// Runs an attempt in a forked child, so that its effects end with the child.
///
/// A process cannot leave a user namespace, and one without capabilities, because of AppArmor, is worse than
/// none.
fn try_in_child(attempt: impl FnOnce() -> Result<(), Refused>) -> Result<Result<(), Refused>, Error> {
    let failed = |errno: Errno| Error::ForkChild { source: errno.into() };
    let (answer, child_end) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(failed)?;
    // SAFETY: the child makes system calls only, neither allocates nor takes locks, and ends by _exit.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let (step, errno) = match attempt() {
            Ok(()) => (0, 0),
            Err(refused) => (refused.step as u8, refused.errno.raw_os_error()),
        };
        let [a, b, c, d] = errno.to_ne_bytes();
        let _ = rustix::io::write(&child_end, &[step, a, b, c, d]);
        // SAFETY: ends this process without running the parent's exit handlers.
        unsafe { libc::_exit(0) };
    }
    let Some(pid) = rustix::process::Pid::from_raw(pid).filter(|_| pid > 0) else {
        return Err(Error::ForkChild {
            source: io::Error::last_os_error(),
        });
    };
    drop(child_end);

    let mut bytes = [0; 5];
    let length = rustix::io::retry_on_intr(|| rustix::io::read(&answer, &mut bytes)).map_err(failed)?;
    // If SIGCHLD is ignored, the kernel has reaped the child already.
    let _ = rustix::io::retry_on_intr(|| waitpid(Some(pid), WaitOptions::empty()));
    let [step, a, b, c, d] = bytes;
    match (length, Step::from_repr(step)) {
        (5, Some(step)) => Ok(Err(Refused {
            step,
            errno: Errno::from_raw_os_error(i32::from_ne_bytes([a, b, c, d])),
        })),
        (5, None) => Ok(Ok(())),
        _ => Err(Error::ForkChild {
            source: io::Error::other("the child process died before it answered"),
        }),
    }
}

/// The settings of this machine that limit namespaces.
#[derive(Debug, Default)]
struct KernelLimits {
    unprivileged_userns_clone: Option<u64>,
    apparmor_restrict_unprivileged_userns: Option<u64>,
    max_user_namespaces: Option<u64>,
    max_net_namespaces: Option<u64>,
    seccomp_filter: bool,
}

impl KernelLimits {
    fn read() -> Self {
        let number = |path: &str| fs::read_to_string(path).ok()?.trim().parse().ok();
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        Self {
            unprivileged_userns_clone: number("/proc/sys/kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns: number(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
            ),
            max_user_namespaces: number("/proc/sys/user/max_user_namespaces"),
            max_net_namespaces: number("/proc/sys/user/max_net_namespaces"),
            seccomp_filter: status
                .lines()
                .any(|line| line.split_whitespace().eq(["Seccomp:", "2"])),
        }
    }
}

/// The limit of network namespaces, which the kernel reports when it refuses one.
pub(crate) fn net_namespace_limit() -> RefusalCause {
    diagnose(Step::UnshareNet.refused()(Errno::NOSPC), &KernelLimits::read())
}

fn diagnose(refused: Refused, limits: &KernelLimits) -> RefusalCause {
    let permission = matches!(refused.errno, Errno::PERM | Errno::ACCESS);
    match (refused.step, refused.errno) {
        (Step::UnshareUser, Errno::INVAL) => RefusalCause::NoUserNamespaces,
        (Step::UnshareNet, Errno::INVAL) => RefusalCause::NoNetworkNamespaces,
        (Step::UnshareUser, Errno::NOSPC) => {
            RefusalCause::UserNamespaceLimit(limits.max_user_namespaces.unwrap_or_default())
        }
        (Step::UnshareNet, Errno::NOSPC) => {
            RefusalCause::NetNamespaceLimit(limits.max_net_namespaces.unwrap_or_default())
        }
        _ if permission && limits.unprivileged_userns_clone == Some(0) => RefusalCause::UnprivilegedOff,
        _ if permission
            && limits
                .apparmor_restrict_unprivileged_userns
                .is_some_and(|on| on != 0) =>
        {
            RefusalCause::AppArmor
        }
        (Step::UnshareUser | Step::UnshareNet, Errno::PERM | Errno::NOSYS) if limits.seccomp_filter => {
            RefusalCause::Seccomp
        }
        (step, _) => RefusalCause::Other(step),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(step: Step, errno: Errno) -> Refused {
        Refused { step, errno }
    }

    #[test]
    fn the_reason_names_the_setting_to_change() {
        let debian = KernelLimits {
            unprivileged_userns_clone: Some(0),
            ..KernelLimits::default()
        };
        let ubuntu = KernelLimits {
            apparmor_restrict_unprivileged_userns: Some(1),
            ..KernelLimits::default()
        };
        let docker = KernelLimits {
            seccomp_filter: true,
            ..KernelLimits::default()
        };
        let limited = KernelLimits {
            max_user_namespaces: Some(0),
            max_net_namespaces: Some(7),
            ..KernelLimits::default()
        };
        let unknown = KernelLimits::default();
        let cases = [
            (
                Step::UnshareUser,
                Errno::PERM,
                &debian,
                RefusalCause::UnprivilegedOff,
            ),
            (Step::UnshareUser, Errno::ACCESS, &ubuntu, RefusalCause::AppArmor),
            (Step::MapUser, Errno::PERM, &ubuntu, RefusalCause::AppArmor),
            (Step::UnshareNet, Errno::PERM, &ubuntu, RefusalCause::AppArmor),
            (Step::UnshareUser, Errno::PERM, &docker, RefusalCause::Seccomp),
            (
                Step::UnshareUser,
                Errno::NOSPC,
                &limited,
                RefusalCause::UserNamespaceLimit(0),
            ),
            (
                Step::UnshareNet,
                Errno::NOSPC,
                &limited,
                RefusalCause::NetNamespaceLimit(7),
            ),
            (
                Step::UnshareUser,
                Errno::INVAL,
                &unknown,
                RefusalCause::NoUserNamespaces,
            ),
            (
                Step::UnshareUser,
                Errno::PERM,
                &unknown,
                RefusalCause::Other(Step::UnshareUser),
            ),
            (
                Step::MapUser,
                Errno::PERM,
                &docker,
                RefusalCause::Other(Step::MapUser),
            ),
        ];
        for (step, errno, limits, reason) in cases {
            assert_eq!(diagnose(refused(step, errno), limits), reason, "{step} {errno}");
        }
    }

    #[test]
    fn a_child_process_returns_the_step_and_the_error() {
        let refused = try_in_child(|| Err(Step::MapGroup.refused()(Errno::ROFS)))
            .unwrap()
            .unwrap_err();
        assert_eq!((refused.step, refused.errno), (Step::MapGroup, Errno::ROFS));
        assert!(try_in_child(|| Ok(())).unwrap().is_ok());
    }
}
