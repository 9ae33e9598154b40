//! Names of a file set: which files exist, how many threads use them, and which names come next.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fastrand::Rng;

/// The names of numbered things spread over a directory and its numbered directories.
#[derive(Debug)]
pub(super) struct Names {
    /// Where they all are.
    root: PathBuf,
    /// The part before a file's number.
    stem: &'static str,
    inner: Mutex<Inner>,
    /// Locked while a directory is made: their numbers have no gaps.
    dir_maker: Mutex<()>,
}

#[derive(Debug, Default)]
struct Inner {
    files: Vec<Slot>,
    /// Numbers of removed files, the oldest first: their names are used again before there are new
    /// ones.
    free: VecDeque<usize>,
    present: usize,
    /// Numbered directories next to the files.
    dirs: u32,
}

#[derive(Debug)]
struct Slot {
    /// Zero for the directory of all, else one more than the number of a directory in it.
    place: u32,
    is_present: bool,
    /// Number of times that it was renamed: that many letters follow its number.
    renames: usize,
    users: Arc<Users>,
}

/// Names stay shorter than any file system's limit: the next one has no letters again.
const MOST_RENAMES: usize = 200;

/// The users of a file: many that leave it in place, or one that does not.
#[derive(Debug, Default)]
struct Users(AtomicU32);

const ALONE: u32 = u32::MAX;

impl Slot {
    fn new(place: u32) -> Self {
        Self { place, is_present: false, renames: 0, users: Arc::default() }
    }
}

impl Users {
    fn try_share(&self) -> bool {
        let more = |users: u32| (users < ALONE - 1).then(|| users + 1);
        self.0.fetch_update(Ordering::Acquire, Ordering::Relaxed, more).is_ok()
    }

    fn try_alone(&self) -> bool {
        self.0.compare_exchange(0, ALONE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }
}

/// A file that a thread uses, until it is dropped.
#[derive(Debug)]
pub(super) struct UsedFile {
    pub(super) path: PathBuf,
    number: usize,
    users: Arc<Users>,
}

impl Drop for UsedFile {
    fn drop(&mut self) {
        if self.users.0.load(Ordering::Relaxed) == ALONE {
            self.users.0.store(0, Ordering::Release);
        } else {
            self.users.0.fetch_sub(1, Ordering::Release);
        }
    }
}

/// How a chosen file is used.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Use {
    /// It stays where it is: others may use it too.
    Shared,
    /// It is removed.
    Alone,
}

/// The result of choosing a file.
#[derive(Debug)]
pub(super) enum Choice {
    File(UsedFile),
    /// There are files, but the tried ones are in use.
    AllInUse,
    /// There are no files.
    NoFile,
}

impl Names {
    pub(super) fn new(root: PathBuf, stem: &'static str, dirs: u32) -> Self {
        let inner = Inner { dirs, ..Inner::default() };
        Self { root, stem, inner: Mutex::new(inner), dir_maker: Mutex::default() }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path of a numbered directory.
    pub(super) fn dir(&self, number: u32) -> PathBuf {
        self.root.join(format!("datadir{number}"))
    }

    /// Makes one more directory; from then on files are put into it too.
    pub(super) fn add_dir<E>(&self, make: impl FnOnce(&Path) -> Result<(), E>) -> Result<(), E> {
        let _alone = self.dir_maker.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.lock().dirs;
        make(&self.dir(number))?;
        self.lock().dirs = number + 1;
        Ok(())
    }

    fn path(&self, number: usize, slot: &Slot) -> PathBuf {
        let name = format!("{}{number}{}", self.stem, "a".repeat(slot.renames));
        match slot.place {
            0 => self.root.join(name),
            place => self.dir(place - 1).join(name),
        }
    }

    /// A name for a new file: the one that has been free for longest, else a new one in a random
    /// directory. The file exists for other threads once its maker calls [`Self::made`].
    pub(super) fn next(&self, random: &mut Rng) -> UsedFile {
        let mut inner = self.lock();
        let number = inner.free.pop_front().unwrap_or_else(|| {
            let place = random.u32(..=inner.dirs);
            inner.files.push(Slot::new(place));
            inner.files.len() - 1
        });
        inner.files[number].renames = 0;
        let slot = &inner.files[number];
        // No thread chooses a file that does not exist, so it has no users.
        assert!(slot.users.try_alone(), "file {number} is made and in use");
        UsedFile { path: self.path(number, slot), number, users: slot.users.clone() }
    }

    /// The file of a name given by [`Self::next`] exists.
    pub(super) fn made(&self, file: &UsedFile) {
        let mut inner = self.lock();
        inner.files[file.number].is_present = true;
        inner.present += 1;
    }

    /// The file, held alone, is gone, and its name free.
    pub(super) fn removed(&self, file: UsedFile) {
        let mut inner = self.lock();
        inner.files[file.number].is_present = false;
        inner.present -= 1;
        inner.free.push_back(file.number);
        // Given back under the lock, before anybody gets the name.
        drop(file);
    }

    /// Gives the file, held alone, its next name.
    pub(super) fn rename<E>(
        &self,
        file: &UsedFile,
        rename: impl FnOnce(&Path, &Path) -> Result<(), E>,
    ) -> Result<(), E> {
        let (renames, to) = {
            let inner = self.lock();
            let slot = &inner.files[file.number];
            let renames = (slot.renames + 1) % (MOST_RENAMES + 1);
            (renames, self.path(file.number, &Slot { renames, ..Slot::new(slot.place) }))
        };
        rename(&file.path, &to)?;
        self.lock().files[file.number].renames = renames;
        Ok(())
    }

    /// A random file without conflicting users: each as likely as any other.
    pub(super) fn choose(&self, random: &mut Rng, how: Use) -> Choice {
        let inner = self.lock();
        if inner.present == 0 {
            return Choice::NoFile;
        }
        // If most names are free or in use it may find none: the caller tries again.
        for _ in 0..inner.files.len().min(1000) {
            let number = random.usize(..inner.files.len());
            let slot = &inner.files[number];
            let is_held = slot.is_present
                && match how {
                    Use::Shared => slot.users.try_share(),
                    Use::Alone => slot.users.try_alone(),
                };
            if is_held {
                let path = self.path(number, slot);
                return Choice::File(UsedFile { path, number, users: slot.users.clone() });
            }
        }
        Choice::AllInUse
    }

    /// All files that are there, in the order of their numbers.
    #[cfg(test)]
    fn paths(&self) -> Vec<PathBuf> {
        let inner = self.lock();
        let numbered = inner.files.iter().enumerate().filter(|(_, slot)| slot.is_present);
        numbered.map(|(number, slot)| self.path(number, slot)).collect()
    }

    /// Takes over existing files: `place` is 0 or a directory's number plus one. `None` if their
    /// numbers are not those from zero on.
    pub(super) fn adopt(&self, found: impl IntoIterator<Item = (usize, u32)>) -> Option<()> {
        let mut places: Vec<(usize, u32)> = found.into_iter().collect();
        places.sort_unstable();
        let mut inner = self.lock();
        if !places.iter().map(|(number, _)| *number).eq(0..places.len()) {
            return None;
        }
        inner.present = places.len();
        let slot = |place| Slot { is_present: true, ..Slot::new(place) };
        inner.files = places.into_iter().map(|(_, place)| slot(place)).collect();
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_files(count: usize, random: &mut Rng) -> Names {
        let names = Names::new(PathBuf::from("/data"), "datafile", 2);
        for _ in 0..count {
            names.made(&names.next(random));
        }
        names
    }

    fn chosen(names: &Names, random: &mut Rng, how: Use) -> UsedFile {
        match names.choose(random, how) {
            Choice::File(file) => file,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_oldest_free_name_comes_first_and_stays_in_its_place() {
        let mut random = Rng::with_seed(1);
        let names = with_files(20, &mut random);
        let all = names.paths();
        let first = chosen(&names, &mut random, Use::Alone);
        let second = chosen(&names, &mut random, Use::Alone);
        let freed = [first.path.clone(), second.path.clone()];
        names.removed(first);
        names.removed(second);
        assert_eq!(names.paths().len(), 18);
        let again: Vec<PathBuf> = (0..2)
            .map(|_| {
                let file = names.next(&mut random);
                names.made(&file);
                file.path.clone()
            })
            .collect();
        assert_eq!(again, freed);
        assert_eq!(names.paths(), all);
        assert!(names.next(&mut random).path.ends_with("datafile20"));
    }

    #[test]
    fn a_file_that_goes_away_has_one_user() {
        let mut random = Rng::with_seed(2);
        let names = with_files(1, &mut random);
        let first = chosen(&names, &mut random, Use::Shared);
        let second = chosen(&names, &mut random, Use::Shared);
        assert!(matches!(names.choose(&mut random, Use::Alone), Choice::AllInUse));
        drop((first, second));
        let alone = chosen(&names, &mut random, Use::Alone);
        assert!(matches!(names.choose(&mut random, Use::Shared), Choice::AllInUse));
        names.removed(alone);
        assert!(matches!(names.choose(&mut random, Use::Shared), Choice::NoFile));
    }

    #[test]
    fn files_are_spread_over_the_top_and_all_directories() {
        let mut random = Rng::with_seed(3);
        let names = with_files(3000, &mut random);
        let inside = |dir: &str| {
            let paths = names.paths();
            paths.iter().filter(|path| path.parent() == Some(Path::new(dir))).count()
        };
        for dir in ["/data", "/data/datadir0", "/data/datadir1"] {
            assert!((850..1150).contains(&inside(dir)), "{dir}: {}", inside(dir));
        }
    }

    #[test]
    fn files_that_were_there_are_taken_over_if_none_is_missing() {
        let mut random = Rng::with_seed(4);
        let names = Names::new(PathBuf::from("/data"), "datafile", 1);
        assert_eq!(names.adopt([(0, 0), (2, 1)]), None);
        assert_eq!(names.adopt([(1, 1), (0, 0)]), Some(()));
        assert_eq!(
            names.paths(),
            [Path::new("/data/datafile0"), Path::new("/data/datadir0/datafile1")]
        );
        assert!(names.next(&mut random).path.ends_with("datafile2"));
    }
}
