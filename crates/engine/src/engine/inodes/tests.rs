use super::*;
use extant_ondisk::BlockNo;
use extant_ondisk::inode::{Inode, InodeFlags};
use extant_ondisk::time::Timestamp;

/// An empty file with a link count.
pub(crate) fn loaded(number: InodeNo, links: u16) -> LoadedInode {
    let now = Timestamp::new(0, 0);
    let inode = Inode {
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        size: 0,
        atime: now,
        ctime: now,
        mtime: now,
        crtime: None,
        dtime: 0,
        links,
        blocks: 0,
        flags: InodeFlags::empty(),
        version: 0,
        i_block: [0; 60],
        generation: 0,
        file_acl: BlockNo(0),
        extra_isize: 0,
        project: None,
    };
    LoadedInode { number, inode, xattr_space: Box::default() }
}

fn in_memory(cache: &InodeCache) -> usize {
    cache.shards.iter().map(|shard| shard.lock().inodes.len()).sum()
}

/// Acquires an inode with a link count.
fn hold(cache: &InodeCache, number: u32, links: u16) {
    let file = cache.get(InodeNo(number));
    *file.state.write_keyed(LockClass::File.key(InodeNo(number))) =
        Some(State::new(loaded(InodeNo(number), links)));
    file.pin_new();
}

#[test]
fn inodes_that_are_held_go_too_and_their_holds_stay() {
    let cache = InodeCache::new(0);
    for number in 100..20_100 {
        hold(&cache, number, 1);
    }
    assert!(
        in_memory(&cache) <= SHARDS as usize * (MIN_SHARD + NEWCOMERS),
        "{}",
        in_memory(&cache)
    );
    assert_eq!(cache.pinned().len(), 20_000);
    // Back in memory, it is held as before.
    let back = cache.get(InodeNo(100));
    assert!(back.is_pinned() && cache.is_pinned(InodeNo(100)));
    assert_eq!(cache.unpin_absent(InodeNo(100), 1), None);
    assert!(back.unpin(1) && !cache.is_pinned(InodeNo(100)));
    // One that is not in memory.
    assert_eq!(cache.unpin_absent(InodeNo(101), 1), Some(true));
    assert!(!cache.is_pinned(InodeNo(101)));
    assert_eq!(cache.unpin_absent(InodeNo(101), 1), Some(false));
}

#[test]
fn lost_data_are_told_after_the_inode_was_given_up() {
    let cache = InodeCache::new(0);
    let lose = |number: u32, holds: u64| {
        hold(&cache, number, 1);
        let file = cache.get(InodeNo(number));
        let sample = file.error_sample();
        file.set_lost(Error::NoSpace);
        file.unpin(1 - holds);
        sample
    };
    let (mut held, mut open) = (lose(64, 1), lose(128, 0));
    let evict = |from: u32| {
        for number in from..from + 2_000 {
            hold(&cache, 64 * number, 1);
            // Inodes that are used again evict inodes that were kept longer.
            cache.get(InodeNo(64 * number));
        }
        assert!(!cache.shard(InodeNo(64)).inodes.contains_key(&64));
    };
    evict(3);
    // The first file is open twice, and one handle got the error before the inode was evicted
    // again.
    let mut second = cache.get(InodeNo(64)).error_sample();
    assert!(cache.get(InodeNo(64)).check_lost(&mut second).is_err());
    hold(&cache, 64, 1);
    evict(3_000);
    let file = cache.get(InodeNo(64));
    assert!(file.check_lost(&mut held).is_err());
    assert!(file.check_lost(&mut held).is_ok() && file.check_lost(&mut second).is_ok());
    let mut late = file.error_sample();
    assert!(file.check_lost(&mut late).is_ok(), "it was opened after the error was reported");
    // The second file is not open, so that the error waits for the next open.
    assert!(cache.get(InodeNo(128)).check_lost(&mut open).is_err());
}

#[test]
fn an_inode_without_links_stays_while_it_is_held() {
    let cache = InodeCache::new(0);
    hold(&cache, 64, 0);
    let held = Arc::downgrade(&cache.get(InodeNo(64)));
    for number in 2..2_000 {
        hold(&cache, 64 * number, 1);
    }
    assert!(held.upgrade().is_some_and(|file| file.is_pinned()));
}
