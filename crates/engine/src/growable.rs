//! Lists and values that get longer or newer while others read them. What was given out stays where
//! it is until the owner is dropped, so that readers take no lock.

use extant_runtime::sync::atomic::{AtomicUsize, Ordering};
use std::ops::Deref;
use std::sync::OnceLock;

/// A list of elements that are changed in place. It is made longer by one thread at a time.
///
/// Each part after the first is at least as long as all before it, so that an element is found in
/// a few steps however often the list was made longer; those of the first part in one.
#[derive(Debug)]
pub(crate) struct Growable<T> {
    first: Box<[T]>,
    next: OnceLock<Box<Self>>,
}

impl<T> Growable<T> {
    /// A list of `count` elements.
    pub(crate) fn new(count: usize, make: impl FnMut(usize) -> T) -> Self {
        Self { first: (0..count).map(make).collect(), next: OnceLock::new() }
    }

    /// The element at an index; `None` past the end.
    #[inline]
    pub(crate) fn get(&self, index: usize) -> Option<&T> {
        match self.first.get(index) {
            Some(element) => Some(element),
            None => self.get_later(index - self.first.len()),
        }
    }

    #[cold]
    fn get_later(&self, mut index: usize) -> Option<&T> {
        let mut part = self.next.get()?;
        loop {
            if let Some(element) = part.first.get(index) {
                return Some(element);
            }
            index -= part.first.len();
            part = part.next.get()?;
        }
    }

    /// Number of elements, those included that no one has asked for yet.
    pub(crate) fn len(&self) -> usize {
        self.first.len() + self.next.get().map_or(0, |next| next.len())
    }

    /// Makes the list at least `count` elements long.
    pub(crate) fn grow(&self, count: usize, mut make: impl FnMut(usize) -> T) {
        let (mut part, mut length) = (self, self.first.len());
        while let Some(next) = part.next.get() {
            length += next.first.len();
            part = next;
        }
        if count > length {
            let added = (count - length).max(length);
            part.next.get_or_init(|| Box::new(Self::new(added, |index| make(length + index))));
        }
    }
}

/// A value that is replaced by newer ones. The older ones are kept: a reader may have them still.
#[derive(Debug)]
pub(crate) struct Versions<T> {
    first: T,
    later: Growable<OnceLock<T>>,
    /// Number of later versions.
    count: AtomicUsize,
}

impl<T> Versions<T> {
    pub(crate) fn new(first: T) -> Self {
        Self { first, later: Growable::new(0, |_| OnceLock::new()), count: AtomicUsize::new(0) }
    }

    /// The newest one.
    #[inline]
    pub(crate) fn newest(&self) -> &T {
        match self.count.load(Ordering::Acquire) {
            0 => &self.first,
            count => self.later_one(count),
        }
    }

    #[cold]
    fn later_one(&self, count: usize) -> &T {
        self.later.get(count - 1).and_then(OnceLock::get).unwrap_or(&self.first)
    }

    /// Adds a version. One thread at a time does.
    pub(crate) fn push(&self, value: T) {
        let count = self.count.load(Ordering::Acquire);
        self.later.grow(count + 1, |_| OnceLock::new());
        if let Some(place) = self.later.get(count) {
            place.get_or_init(|| value);
        }
        self.count.store(count + 1, Ordering::Release);
    }
}

impl<T> Deref for Versions<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_runtime::sync::thread::scope;

    #[test]
    fn elements_stay_where_they_are_when_the_list_grows() {
        let list = Growable::new(3, AtomicUsize::new);
        let kept: Vec<_> = (0..3).map(|index| list.get(index).unwrap()).collect();
        for length in [3, 4, 5, 100, 101, 5000] {
            list.grow(length, AtomicUsize::new);
            assert!(list.len() >= length);
        }
        kept[2].store(77, Ordering::Relaxed);
        let values = (0..5000).map(|index| list.get(index).unwrap().load(Ordering::Relaxed));
        assert!(
            values.enumerate().all(|(index, value)| value == if index == 2 { 77 } else { index })
        );
        assert!(list.get(list.len()).is_none());
        let mut parts = 0;
        let mut part = Some(&list);
        while let Some(of) = part {
            parts += 1;
            part = of.next.get().map(|next| &**next);
        }
        assert!(parts < 12, "{parts}");
    }

    #[test]
    fn readers_see_versions_in_order() {
        let versions = Versions::new(0);
        scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 500 {
                        let now = **std::hint::black_box(&&*versions);
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                    }
                });
            }
            (1..=500).for_each(|version| versions.push(version));
        });
        assert_eq!(*versions, 500);
    }
}
