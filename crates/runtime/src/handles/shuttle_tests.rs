//! Every schedule of threads on a table of handles, and on an object with children. Each test is
//! small enough that the search comes to its end, which it asserts.

use shuttle::scheduler::DfsScheduler;
use shuttle::{Config, Runner};

use super::*;
use crate::sync::atomic::AtomicBool;
use crate::sync::thread;

/// A search that has tried this number of schedules has not ended.
const MOST: usize = 1_000_000;

/// Runs under every schedule there is.
fn every_schedule(run: impl Fn() + Send + Sync + 'static) {
    let runner = Runner::new(DfsScheduler::new(Some(MOST), false), Config::new());
    let tried = runner.run(run);
    assert!(tried > 1 && tried < MOST, "{tried} schedules are not all");
    println!("{tried} schedules");
}

/// Runs two calls at once, one in a thread of its own; what both give.
fn at_once<A: Send + 'static, B>(
    other: impl FnOnce() -> A + Send + 'static,
    own: impl FnOnce() -> B,
) -> (A, B) {
    let other = thread::spawn(other);
    let own = own();
    (other.join().expect("it ends"), own)
}

#[test]
fn one_of_two_threads_closes_a_handle() {
    every_schedule(|| {
        let table = Arc::new(Table::new());
        let handle = table.insert(7);
        let other = table.clone();
        let (one, two) = at_once(move || other.remove(handle), || table.remove(handle));
        assert_eq!(one.is_ok(), two.is_err());
        assert_eq!(one.or(two), Ok(7));
        assert_eq!(table.get(handle), Err(HandleError::Closed));
    });
}

/// An object that a call has taken out of the table is there to the end of the call.
#[test]
fn a_handle_is_used_while_it_is_closed() {
    every_schedule(|| {
        let table = Arc::new(Table::new());
        let handle = table.insert(Arc::new(7));
        let other = table.clone();
        let (used, closed) = at_once(
            move || other.get(handle).map(|found| *found),
            || table.remove(handle).map(|found| *found),
        );
        assert!(matches!(used, Ok(7) | Err(HandleError::Closed)));
        assert_eq!(closed, Ok(7));
        assert!(table.get(handle).is_err());
    });
}

#[test]
fn two_objects_never_have_one_handle() {
    every_schedule(|| {
        let table = Arc::new(Table::new());
        let other = table.clone();
        let (one, two) = at_once(move || other.insert(1), || table.insert(2));
        assert_ne!(one, two);
        assert_eq!((table.get(one), table.get(two)), (Ok(1), Ok(2)));
    });
}

/// The handle of something closed stays closed while others are opened, in the same shard too.
#[test]
fn a_closed_handle_does_not_come_back() {
    every_schedule(|| {
        let table = Arc::new(Table::new());
        let handle = table.insert(0);
        for filler in 1..SHARDS as u64 {
            table.insert(filler);
        }
        let other = table.clone();
        let (fresh, closed) =
            at_once(move || other.insert(99), || (table.remove(handle), table.get(handle)));
        assert_eq!(fresh % SHARDS as u64, handle % SHARDS as u64);
        assert_eq!(closed, (Ok(0), Err(HandleError::Closed)));
        assert_eq!((table.get(fresh), table.get(handle)), (Ok(99), Err(HandleError::Closed)));
    });
}

/// Two threads close a handle, and a third one uses it.
#[test]
fn three_threads_on_one_handle() {
    every_schedule(|| {
        let table = Arc::new(Table::new());
        let handle = table.insert(Arc::new(7));
        let close = |table: Arc<Table<Arc<i32>>>| move || table.remove(handle).is_ok();
        let closers = [thread::spawn(close(table.clone())), thread::spawn(close(table.clone()))];
        let used = table.get(handle).map(|found| *found);
        assert!(matches!(used, Ok(7) | Err(HandleError::Closed)));
        let closed = closers.map(|closer| closer.join().expect("it ends"));
        assert_eq!(closed.into_iter().filter(|closed| *closed).count(), 1);
        assert!(table.get(handle).is_err());
    });
}

/// The parent is closed with no child, or stays.
#[test]
fn a_parent_never_closes_under_a_child() {
    every_schedule(|| {
        let parent = Arc::new(Parent::new(Arc::new(5)));
        let other = parent.clone();
        let (used, closed) = at_once(
            move || {
                let child = other.child(|number| Ok::<_, HandleError>(number.clone()));
                child.map(|child| **child.get())
            },
            || parent.close(|number| Arc::strong_count(&number)),
        );
        match closed {
            // Nothing but this thread held the object when it was closed.
            Ok(holders) => assert_eq!(holders, 1),
            Err(error) => assert_eq!((error, used), (HandleError::Busy, Ok(5))),
        }
        assert!(matches!(used, Ok(5) | Err(HandleError::Closed)));
        assert_eq!(parent.close(|_| ()).is_ok(), closed.is_err());
    });
}

#[test]
fn one_of_two_threads_closes_a_parent() {
    every_schedule(|| {
        let parent = Arc::new(Parent::new(5));
        let other = parent.clone();
        let (one, two) = at_once(move || other.close(|it| it), || parent.close(|it| it));
        assert_eq!(one.is_ok(), two.is_err());
        assert!(one.is_ok() || one == Err(HandleError::Closed));
        assert!(two.is_ok() || two == Err(HandleError::Closed));
    });
}

/// A call on the parent that has begun comes to its end before the parent is closed.
#[test]
fn a_parent_is_not_closed_during_a_call() {
    every_schedule(|| {
        let parent = Arc::new(Parent::new(Arc::new(AtomicBool::new(true))));
        let other = parent.clone();
        let (called, closed) = at_once(
            move || {
                other.with(|is_open| {
                    thread::yield_now();
                    Ok::<_, HandleError>(is_open.load(Ordering::SeqCst))
                })
            },
            || parent.close(|is_open| is_open.store(false, Ordering::SeqCst)),
        );
        assert!(matches!(called, Ok(true) | Err(HandleError::Closed)));
        assert_eq!(closed, Ok(()));
    });
}

/// Volumes and their files by handles, with the calls of libextant.
struct Library {
    volumes: Table<Arc<Parent<Volume>>>,
    files: Table<Arc<Child<Volume, File>>>,
}

/// Whether it is open, as its files see it.
type Volume = Arc<AtomicBool>;

struct File(Volume);

impl Drop for File {
    fn drop(&mut self) {
        assert!(self.0.load(Ordering::SeqCst), "a volume was closed under its file");
    }
}

impl Library {
    /// A library with an open volume.
    fn new() -> (Arc<Self>, u64) {
        let library = Self { volumes: Table::new(), files: Table::new() };
        let volume = Parent::new(Arc::new(AtomicBool::new(true)));
        let handle = library.volumes.insert(Arc::new(volume));
        (Arc::new(library), handle)
    }

    fn open_file(&self, volume: u64) -> Result<u64, HandleError> {
        let volume = self.volumes.get(volume)?;
        let file = volume.child(|volume| Ok::<_, HandleError>(File(volume.clone())))?;
        Ok(self.files.insert(Arc::new(file)))
    }

    fn read(&self, file: u64) -> Result<bool, HandleError> {
        Ok(self.files.get(file)?.get().0.load(Ordering::SeqCst))
    }

    fn close_file(&self, file: u64) -> Result<(), HandleError> {
        self.files.remove(file).map(drop)
    }

    fn close(&self, volume: u64) -> Result<(), HandleError> {
        let found = self.volumes.get(volume)?;
        found.close(|volume| volume.store(false, Ordering::SeqCst))?;
        self.volumes.remove(volume).map(drop)
    }
}

#[test]
fn a_file_is_opened_while_its_volume_is_closed() {
    every_schedule(|| {
        let (library, volume) = Library::new();
        let other = library.clone();
        let (file, closed) = at_once(move || other.open_file(volume), || library.close(volume));
        match (file, closed) {
            (Ok(file), Err(HandleError::Busy)) => {
                assert_eq!(library.read(file), Ok(true));
                assert_eq!(library.close_file(file), Ok(()));
                assert_eq!(library.close(volume), Ok(()));
            }
            (Err(HandleError::Closed), Ok(())) => {}
            other => panic!("{other:?}"),
        }
        assert_eq!(library.close(volume), Err(HandleError::Closed));
    });
}

#[test]
fn a_file_and_its_volume_are_closed_at_once() {
    every_schedule(|| {
        let (library, volume) = Library::new();
        let file = library.open_file(volume).expect("it is opened");
        let other = library.clone();
        let (of_file, closed) = at_once(move || other.close_file(file), || library.close(volume));
        assert_eq!(of_file, Ok(()));
        assert!(matches!(closed, Ok(()) | Err(HandleError::Busy)));
        assert_eq!(library.close(volume).is_ok(), closed.is_err());
        assert_eq!(library.read(file), Err(HandleError::Closed));
    });
}

/// The file that is read keeps its volume open to the end of the call, though its handle is closed.
#[test]
fn a_file_is_read_while_it_and_its_volume_are_closed() {
    every_schedule(|| {
        let (library, volume) = Library::new();
        let file = library.open_file(volume).expect("it is opened");
        let other = library.clone();
        let (read, closed) =
            at_once(move || other.read(file), || (library.close_file(file), library.close(volume)));
        assert!(matches!(read, Ok(true) | Err(HandleError::Closed)));
        assert_eq!(closed.0, Ok(()));
        assert!(matches!(closed.1, Ok(()) | Err(HandleError::Busy)));
        assert_eq!(library.close(volume).is_ok(), closed.1.is_err());
    });
}

/// One thread opens a child, two close the parent: one of them does, once, or none while there is a
/// child.
#[test]
fn two_threads_close_a_parent_while_a_child_is_opened() {
    every_schedule(|| {
        let parent = Arc::new(Parent::new(5));
        let close = |parent: Arc<Parent<i32>>| move || parent.close(|it| it);
        let closers = [thread::spawn(close(parent.clone())), thread::spawn(close(parent.clone()))];
        let child = parent.child(|it| Ok::<_, HandleError>(*it));
        let closed = closers.map(|closer| closer.join().expect("it ends"));
        let count = closed.iter().filter(|closed| closed.is_ok()).count();
        match child {
            Ok(child) => {
                assert_eq!(closed, [Err(HandleError::Busy); 2]);
                drop(child);
                assert_eq!(parent.close(|it| it), Ok(5));
            }
            Err(error) => assert_eq!((error, count), (HandleError::Closed, 1)),
        }
        assert_eq!(parent.close(|it| it), Err(HandleError::Closed));
    });
}

/// A file is read by one thread, closed by another and its volume by a third.
#[test]
fn three_threads_on_a_file_and_its_volume() {
    every_schedule(|| {
        let volume = Arc::new(Parent::new(Arc::new(AtomicBool::new(true))));
        let file = volume.child(|it| Ok::<_, HandleError>(File(it.clone())));
        let files = Arc::new(Table::new());
        let handle = files.insert(Arc::new(file.expect("it is opened")));
        let (of_reader, of_closer) = (files.clone(), files);
        let reader = thread::spawn(move || {
            of_reader.get(handle).map(|file| file.get().0.load(Ordering::SeqCst))
        });
        let closer = thread::spawn(move || of_closer.remove(handle).map(drop));
        let close = || volume.close(|volume| volume.store(false, Ordering::SeqCst));
        let closed = close();
        assert!(matches!(reader.join().expect("it ends"), Ok(true) | Err(HandleError::Closed)));
        assert_eq!(closer.join().expect("it ends"), Ok(()));
        assert!(matches!(closed, Ok(()) | Err(HandleError::Busy)));
        assert_eq!(close().is_ok(), closed.is_err());
    });
}
