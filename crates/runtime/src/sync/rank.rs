//! The order in which locks are taken, checked in debug builds.

/// A position in the lock order, declared by [`lock_ranks!`](crate::lock_ranks).
pub trait Rank: 'static {
    /// The level: locks are taken in ascending order; `None` is outside the order.
    const LEVEL: Option<u32>;
    /// The lock's name in panics.
    const NAME: &'static str;
}

/// A rank of which one thread may hold several locks, taken in ascending order of keys (inodes by
/// number, for instance).
pub trait KeyedRank: Rank {}

/// The rank of locks outside the order.
#[derive(Debug)]
pub enum Unranked {}

impl Rank for Unranked {
    const LEVEL: Option<u32> = None;
    const NAME: &'static str = "a lock without a rank";
}

/// Declares lock ranks, one type each:
/// `lock_ranks! { /// What it guards. pub InodeLock = 10, keyed; }`. A thread that holds a lock
/// takes only locks of higher levels; with `keyed`, also locks of the same rank with a higher key.
#[macro_export]
macro_rules! lock_ranks {
    ($($(#[$doc:meta])* $vis:vis $name:ident = $level:literal $(, $keyed:ident)?;)*) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        $vis enum $name {}
        impl $crate::sync::Rank for $name {
            const LEVEL: Option<u32> = Some($level);
            const NAME: &'static str = stringify!($name);
        }
        $crate::lock_ranks!(@ $name $($keyed)?);
    )*};
    (@ $name:ident keyed) => {
        impl $crate::sync::KeyedRank for $name {}
    };
    (@ $name:ident) => {};
}

#[cfg(not(debug_assertions))]
pub(super) use unchecked::Held;

#[cfg(debug_assertions)]
pub(super) use checked::Held;

#[cfg(not(debug_assertions))]
mod unchecked {
    use super::Rank;

    pub(crate) struct Held;

    impl Held {
        #[inline(always)]
        pub(crate) fn blocking<R: Rank>(_: usize, _: Option<u64>) -> Self {
            Self
        }
        #[inline(always)]
        pub(crate) fn trying<R: Rank>(_: usize) -> Self {
            Self
        }
        #[inline(always)]
        pub(crate) fn trying_keyed<R: Rank>(_: usize, _: u64) -> Self {
            Self
        }
        #[inline(always)]
        pub(crate) fn assert_last(&self) {}
    }
}

#[cfg(debug_assertions)]
mod checked {
    use std::cell::RefCell;
    use std::fmt;
    use std::marker::PhantomData;

    use super::Rank;
    use crate::raw::thread_local;

    #[derive(Clone, Copy)]
    struct Entry {
        address: usize,
        level: Option<u32>,
        key: Option<u64>,
        name: &'static str,
    }

    impl fmt::Display for Entry {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.name)?;
            match self.key {
                Some(key) => write!(f, "[{key}]"),
                None => Ok(()),
            }
        }
    }

    thread_local! {
        // Shuttle's macro has no const form.
        #[allow(clippy::missing_const_for_thread_local)]
        static HELD: RefCell<Vec<Entry>> = RefCell::new(Vec::new());
    }

    /// A lock held by a thread. It stays on the thread, as the guard that contains it does.
    pub(crate) struct Held {
        address: usize,
        stays: PhantomData<*const ()>,
    }

    impl Held {
        /// Called before the thread waits for a lock.
        #[track_caller]
        pub(crate) fn blocking<R: Rank>(address: usize, key: Option<u64>) -> Self {
            let new = Entry { address, level: R::LEVEL, key, name: R::NAME };
            let conflict =
                HELD.with(|held| held.borrow().iter().find(|old| forbids(old, &new)).copied());
            if let Some(old) = conflict {
                if old.address == new.address {
                    panic!("lock order: {new} is locked again by the thread that holds it");
                }
                panic!("lock order: {new} is taken while {old} is held");
            }
            Self::push(new)
        }

        /// Called after a lock was taken without waiting.
        pub(crate) fn trying<R: Rank>(address: usize) -> Self {
            Self::push(Entry { address, level: R::LEVEL, key: None, name: R::NAME })
        }

        /// As [`Self::trying`], for a lock with a key.
        pub(crate) fn trying_keyed<R: Rank>(address: usize, key: u64) -> Self {
            Self::push(Entry { address, level: R::LEVEL, key: Some(key), name: R::NAME })
        }

        fn push(entry: Entry) -> Self {
            HELD.with(|held| held.borrow_mut().push(entry));
            Self { address: entry.address, stays: PhantomData }
        }

        /// Called before a wait on a condition, which unlocks and locks again.
        #[track_caller]
        pub(crate) fn assert_last(&self) {
            let after = HELD.with(|held| {
                let held = held.borrow();
                let ours = held.iter().position(|entry| entry.address == self.address)?;
                let ranked = held[ours].level.is_some();
                held[ours + 1..]
                    .iter()
                    .find(|entry| ranked && entry.level.is_some())
                    .map(|after| (held[ours], *after))
            });
            if let Some((ours, after)) = after {
                panic!("lock order: {ours} is waited on while {after} is held");
            }
        }
    }

    fn forbids(old: &Entry, new: &Entry) -> bool {
        if old.address == new.address {
            return true;
        }
        match (old.level, new.level) {
            (Some(old_level), Some(new_level)) if old_level == new_level => {
                match (old.key, new.key) {
                    (Some(old_key), Some(new_key)) => new_key <= old_key,
                    _ => true,
                }
            }
            (Some(old_level), Some(new_level)) => new_level < old_level,
            _ => false,
        }
    }

    impl Drop for Held {
        fn drop(&mut self) {
            // At the end of a thread the list may be gone already.
            let _ = HELD.try_with(|held| {
                let mut held = held.borrow_mut();
                if let Some(ours) = held.iter().rposition(|entry| entry.address == self.address) {
                    held.remove(ours);
                }
            });
        }
    }
}
