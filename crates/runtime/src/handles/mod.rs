//! Handles: numbers for objects that threads use and close at any time, for programs in other
//! languages.
//!
//! A number is never used twice, so a handle of something closed cannot become one of something
//! else. A call holds a copy of what the table holds, an `Arc`, so closing it does not
//! take it away from a call that runs. No lock of a table is held during a call.

use std::collections::HashMap;
use std::fmt;

use crate::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, RwLock};

/// Why a handle is refused.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HandleError {
    /// It was never given out, or its object was closed.
    Closed,
    /// The object has open children.
    Busy,
}

impl fmt::Display for HandleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Closed => "bad handle: never opened, or closed",
            Self::Busy => "files or directories are still open",
        })
    }
}

impl std::error::Error for HandleError {}

/// Parts of a table, each with a lock of its own.
const SHARDS: usize = 16;

/// The open objects of one kind.
pub struct Table<T> {
    shards: [RwLock<HashMap<u64, T>>; SHARDS],
    /// 0 is no handle.
    next: AtomicU64,
}

impl<T: Clone> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for Table<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table").finish_non_exhaustive()
    }
}

impl<T: Clone> Table<T> {
    /// An empty table.
    pub fn new() -> Self {
        Self {
            shards: std::array::from_fn(|_| RwLock::new(HashMap::new())),
            next: AtomicU64::new(1),
        }
    }

    fn shard(&self, handle: u64) -> &RwLock<HashMap<u64, T>> {
        &self.shards[(handle % SHARDS as u64) as usize]
    }

    /// Gives an object a handle.
    pub fn insert(&self, object: T) -> u64 {
        // One a nanosecond would last for 584 years.
        let handle = self.next.fetch_add(1, Ordering::Relaxed);
        self.shard(handle).write().insert(handle, object);
        handle
    }

    /// The object of a handle.
    ///
    /// # Errors
    /// The handle is closed.
    pub fn get(&self, handle: u64) -> Result<T, HandleError> {
        self.shard(handle).read().get(&handle).cloned().ok_or(HandleError::Closed)
    }

    /// Takes the handle away. Exactly one of the threads that close it gets the object.
    ///
    /// # Errors
    /// The handle is closed.
    pub fn remove(&self, handle: u64) -> Result<T, HandleError> {
        self.shard(handle).write().remove(&handle).ok_or(HandleError::Closed)
    }
}

/// An object that others are opened from, and that is closed after all of them.
pub struct Parent<T> {
    /// `None` once it is closed. Calls hold it for reading, the one that closes it for writing.
    object: RwLock<Option<T>>,
    /// Number of open children.
    children: AtomicUsize,
}

impl<T> Parent<T> {
    /// An open object without children.
    pub fn new(object: T) -> Self {
        Self { object: RwLock::new(Some(object)), children: AtomicUsize::new(0) }
    }

    /// Runs a call on the object.
    ///
    /// # Errors
    /// The object is closed, or the call failed.
    pub fn with<R, E: From<HandleError>>(
        &self,
        call: impl FnOnce(&T) -> Result<R, E>,
    ) -> Result<R, E> {
        let object = self.object.read();
        call(object.as_ref().ok_or(HandleError::Closed)?)
    }

    /// Opens a child, which keeps the object open.
    ///
    /// # Errors
    /// The object is closed, or the child was not opened.
    pub fn child<C, E: From<HandleError>>(
        self: &Arc<Self>,
        open: impl FnOnce(&T) -> Result<C, E>,
    ) -> Result<Child<T, C>, E> {
        self.with(|object| {
            let child = open(object)?;
            // The object cannot be closed in between: this call holds it for reading.
            self.children.fetch_add(1, Ordering::Relaxed);
            Ok(Child { child: Some(child), parent: self.clone() })
        })
    }

    /// Closes the object, unless it has children: then it stays as it is. Waits for calls that run.
    ///
    /// # Errors
    /// The object is closed already, or has children.
    pub fn close<R>(&self, close: impl FnOnce(T) -> R) -> Result<R, HandleError> {
        let mut object = self.object.write();
        // A child that goes has dropped what it holds of the object before it is counted.
        if object.is_some() && self.children.load(Ordering::Acquire) > 0 {
            return Err(HandleError::Busy);
        }
        object.take().map(close).ok_or(HandleError::Closed)
    }
}

/// An object that keeps its parent open.
pub struct Child<T, C> {
    /// There until it is dropped.
    child: Option<C>,
    parent: Arc<Parent<T>>,
}

impl<T, C> Child<T, C> {
    /// The object itself.
    pub fn get(&self) -> &C {
        self.child.as_ref().expect("it is there until it is dropped")
    }
}

impl<T, C> Drop for Child<T, C> {
    fn drop(&mut self) {
        drop(self.child.take());
        self.parent.children.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(all(test, not(feature = "shuttle")))]
mod tests {
    use super::*;

    #[test]
    fn a_handle_of_something_closed_is_refused_forever() {
        let table = Table::new();
        let first = table.insert("first");
        assert_eq!(table.get(first).ok(), Some("first"));
        assert_eq!(table.remove(first).ok(), Some("first"));
        assert!(table.remove(first).is_err());
        for _ in 0..3 * SHARDS {
            let other = table.insert("other");
            assert!(other != first && other != 0);
            assert!(table.get(first).is_err());
        }
        assert!(table.get(0).is_err());
    }

    #[test]
    fn a_parent_is_closed_after_its_children() {
        let parent = Arc::new(Parent::new(5));
        let child = parent.child(|number| Ok::<_, HandleError>(number + 1)).expect("a child");
        assert_eq!(*child.get(), 6);
        assert_eq!(parent.close(|_| ()), Err(HandleError::Busy));
        assert_eq!(parent.with(|number| Ok::<_, HandleError>(*number)), Ok(5));
        drop(child);
        assert_eq!(parent.close(|number| number), Ok(5));
        assert_eq!(parent.close(|_| ()), Err(HandleError::Closed));
        assert!(parent.child(|_| Ok::<_, HandleError>(())).is_err());
    }
}

#[cfg(all(test, feature = "shuttle"))]
mod shuttle_tests;
