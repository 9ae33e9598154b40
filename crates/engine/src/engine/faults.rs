//! Steps of operations that tests let fail: what a broken device, a full volume or a full
//! transaction may do to any of them. Without the feature `testing` no step fails here.

use extant_reader::Error;
#[cfg(feature = "testing")]
use extant_runtime::sync::atomic::{AtomicBool, Ordering};

/// A step of an operation that may fail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[cfg_attr(not(feature = "testing"), expect(unreachable_pub, reason = "tests alone name it"))]
pub enum Step {
    /// A block of metadata is read: fails as a device does.
    Read,
    /// A block more is dirtied: fails for want of credits.
    Credit,
    /// Clusters or an inode are looked for: fails for want of space.
    Space,
}

/// The steps that are to fail.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    #[cfg(feature = "testing")]
    state: extant_runtime::sync::Mutex<State>,
    /// Some are: most of the time none is, and nothing is locked.
    #[cfg(feature = "testing")]
    are_any: AtomicBool,
}

#[cfg(feature = "testing")]
#[derive(Debug, Default)]
struct State {
    /// The steps that are meant; all if empty.
    only: Option<Step>,
    passes: u64,
    times: u64,
    met: u64,
}

#[cfg(not(feature = "testing"))]
impl Faults {
    pub(crate) fn meet(&self, _: Step) -> Result<(), Error> {
        Ok(())
    }
}

#[cfg(feature = "testing")]
impl Faults {
    /// A step is taken.
    #[inline]
    pub(crate) fn meet(&self, step: Step) -> Result<(), Error> {
        if !self.are_any.load(Ordering::Acquire) {
            return Ok(());
        }
        self.meet_one(step)
    }

    #[cold]
    fn meet_one(&self, step: Step) -> Result<(), Error> {
        use extant_device::{DeviceError, Operation};
        let mut state = self.state.lock();
        if state.times == 0 || state.only.is_some_and(|only| only != step) {
            return Ok(());
        }
        if state.passes > 0 {
            state.passes -= 1;
            return Ok(());
        }
        state.times -= 1;
        state.met += 1;
        Err(match step {
            Step::Read => {
                let source = std::io::Error::other("injected");
                DeviceError::io(Operation::Read, 0, 0, source).into()
            }
            Step::Credit => {
                extant_journal::JournalError::TooManyCredits { asked: 1, limit: 0 }.into()
            }
            Step::Space => Error::NoSpace,
        })
    }

    /// Lets `passes` steps pass and `times` fail.
    pub(crate) fn set(&self, only: Option<Step>, passes: u64, times: u64) {
        *self.state.lock() = State { only, passes, times, met: 0 };
        self.are_any.store(times > 0, Ordering::Release);
    }

    /// Lets all pass; how many have failed.
    pub(crate) fn take(&self) -> u64 {
        self.are_any.store(false, Ordering::Release);
        std::mem::take(&mut *self.state.lock()).met
    }
}
