//! A client of the journal that keeps a table of slots, each a block that is free, journalled, or
//! ordered data.
//!
//! Every operation changes some slots and writes its number into the table, all through one handle.
//! So the table shows which operations a recovered image contains, and the model has the expected
//! content of every slot.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Weak};
use std::time::Duration;

use extant_device::{Device, DeviceError, MemoryDevice, Request};
use extant_journal::{
    CommitHooks, Handle, Journal, JournalError, JournalLocation, JournalOptions, OpenLog,
};
use extant_ondisk::jbd2::RawJournalSuperblock;
use extant_ondisk::superblock::RawSuperblock;
use extant_ondisk::{BlockNo, CompatFeatures, Geometry, Tid};
use extant_runtime::env::Env;
use extant_runtime::sync::{Condvar, Mutex};
use extant_testkit::TempImage;
use zerocopy::IntoBytes;

/// Number of slots.
pub(crate) const SLOTS: u64 = 40;
/// Number of blocks that an operation may dirty.
const CREDITS: u32 = 6;

/// A slot's content, with the operation that wrote it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Slot {
    #[default]
    Free,
    /// Metadata, changed through frames.
    Meta(u64),
    /// File data, written before the commit of the transaction that allocated it.
    Data(u64),
}

/// The slots after an operation.
pub(crate) type Model = Vec<Slot>;

/// A small seeded generator (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ value >> 31
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }
}

/// A volume made by mke2fs, with a run of free blocks for the toy.
#[derive(Clone)]
pub(crate) struct Volume {
    pub(crate) base: Arc<MemoryDevice>,
    pub(crate) geometry: Geometry,
    /// First of the free blocks.
    pub(crate) free: u64,
}

impl Volume {
    /// `mke2fs ARGS`, 8 MiB, or 32 MiB with blocks of 4 KiB; the error is the reason for a skip.
    pub(crate) fn new(args: &[&str], sector_size: u32) -> Result<Self, String> {
        let size = if args.contains(&"4096") { 32 << 20 } else { 8 << 20 };
        let image = TempImage::by_mke2fs(size, args)?;
        let bytes = std::fs::read(image.path()).map_err(|error| error.to_string())?;
        let base = MemoryDevice::with_sectors(bytes.len() as u64, sector_size);
        base.write_at(0, &bytes).map_err(|error| error.to_string())?;
        let raw = RawSuperblock::from_bytes(&bytes[1024..], extant_ondisk::GroupNo(0));
        let geometry = Geometry::new(&raw.unwrap()).unwrap();
        // The end of a new volume is free.
        let free = geometry.blocks_count - SLOTS - 8;
        Ok(Self { base: Arc::new(base), geometry, free })
    }

    /// As [`Self::new`], with a log of `blocks` blocks, shorter than other implementations accept.
    pub(crate) fn with_log(self, blocks: u32) -> Self {
        let place = self.place(&*self.base).expect("the volume has a journal");
        let (start, _) = place.runs.pieces(0, 1).next().unwrap();
        let at = self.geometry.byte_of(start);
        let mut bytes = [0; 1024];
        self.base.read_at(at, &mut bytes).unwrap();
        let mut raw = RawJournalSuperblock::from_bytes(&bytes).unwrap();
        raw.s_maxlen.set(1 + blocks);
        raw.seal();
        self.base.write_at(at, raw.as_bytes()).unwrap();
        self
    }

    fn place(&self, device: &dyn Device) -> Option<JournalLocation> {
        let mut bytes = [0; 1024];
        device.read_at(1024, &mut bytes).unwrap();
        let raw = RawSuperblock::from_bytes(&bytes, extant_ondisk::GroupNo(0)).unwrap();
        let has_journal = self.geometry.has_compat(CompatFeatures::HAS_JOURNAL);
        has_journal.then(|| JournalLocation::internal(device, &raw, &self.geometry).unwrap())
    }

    /// The journal of the volume on `device`.
    pub(crate) fn log(&self, device: &Arc<dyn Device>) -> Option<OpenLog> {
        let place = self.place(&**device)?;
        Some(OpenLog { device: device.clone(), place, is_external: false })
    }

    fn table(&self) -> BlockNo {
        BlockNo(self.free)
    }

    /// Slots are spread, so that not all of them are adjacent.
    fn slot(&self, slot: u64) -> BlockNo {
        BlockNo(self.free + 1 + (slot * 7) % SLOTS)
    }

    fn content(&self, slot: u64, what: Slot) -> Vec<u8> {
        let size = self.geometry.block_len();
        let (kind, op) = match what {
            Slot::Free => (0, 0),
            Slot::Meta(op) => (1, op),
            Slot::Data(op) => (2, op),
        };
        let mut random = Random(op << 16 ^ slot << 8 ^ kind);
        let mut bytes: Vec<u8> =
            (0..size / 8).flat_map(|_| random.number().to_le_bytes()).collect();
        // Some look like blocks of the journal.
        if (op + slot).is_multiple_of(3) {
            bytes[..4].copy_from_slice(&0xc03b_3998_u32.to_be_bytes());
            bytes[4..8].copy_from_slice(&(1 + op as u32 % 5).to_be_bytes());
        }
        bytes
    }

    fn read(&self, device: &dyn Device, block: BlockNo) -> Vec<u8> {
        let mut bytes = vec![0; self.geometry.block_len()];
        device.read_at(self.geometry.byte_of(block), &mut bytes).unwrap();
        bytes
    }

    /// Returns the last operation that a recovered image contains, and checks that every slot is as
    /// in the model after it.
    pub(crate) fn check(&self, device: &dyn Device, history: &[Model], what: &str) -> usize {
        let table = self.read(device, self.table());
        let (op, found) = decode_table(&table);
        let model = &history[usize::try_from(op).unwrap()];
        assert_eq!(&found, model, "{what}: table after operation {op}");
        for (slot, expected) in (0..).zip(model) {
            if *expected == Slot::Free {
                continue;
            }
            let bytes = self.read(device, self.slot(slot));
            let is_right = bytes == self.content(slot, *expected);
            assert!(is_right, "{what}: slot {slot} is not {expected:?} after operation {op}");
        }
        op as usize
    }
}

fn encode_table(op: u64, slots: &[Slot], bytes: &mut [u8]) {
    bytes[..8].copy_from_slice(&op.to_le_bytes());
    for (at, slot) in slots.iter().enumerate() {
        let word = match slot {
            Slot::Free => 0,
            Slot::Meta(op) => op << 2 | 1,
            Slot::Data(op) => op << 2 | 2,
        };
        bytes[8 + at * 8..][..8].copy_from_slice(&word.to_le_bytes());
    }
}

fn decode_table(bytes: &[u8]) -> (u64, Model) {
    let word = |at: usize| u64::from_le_bytes(bytes[at * 8..][..8].try_into().unwrap());
    let slot = |at| match word(at + 1) {
        0 => Slot::Free,
        word if word & 3 == 1 => Slot::Meta(word >> 2),
        word => Slot::Data(word >> 2),
    };
    (word(0), (0..SLOTS as usize).map(slot).collect())
}

/// Data to be written before its transaction commits, and blocks to be reused after the transaction
/// that freed them commits.
#[derive(Default)]
struct Waiting {
    data: Vec<(Tid, BlockNo, Vec<u8>)>,
    freed: VecDeque<(Tid, u64)>,
    reusable: Vec<u64>,
}

struct Ordered {
    env: Env,
    device: Weak<dyn Device>,
    geometry: Geometry,
    waiting: Mutex<Waiting>,
}

impl CommitHooks for Ordered {
    fn before_commit(&self, tid: Tid) -> Result<(), DeviceError> {
        if self.env.is_stepped() && tid.0.is_multiple_of(2) {
            // Gives the next transaction the chance to change frames that this one has not taken
            // yet.
            let (nothing, never) = (Mutex::new(()), Condvar::new());
            let limit = Duration::from_millis(1);
            self.env.wait_while_for(&never, &mut nothing.lock(), limit, |()| true);
        }
        let due: Vec<_> = {
            let mut waiting = self.waiting.lock();
            let all = std::mem::take(&mut waiting.data);
            let (due, later) = all.into_iter().partition(|(of, ..)| !tid.is_before(*of));
            waiting.data = later;
            due
        };
        let Some(device) = self.device.upgrade() else { return Ok(()) };
        let mut batch: Vec<_> = due
            .iter()
            .map(|(_, block, bytes)| Request::write(self.geometry.byte_of(*block), bytes))
            .collect();
        device.submit(&mut batch)
    }

    fn committed(&self, tid: Tid) {
        let mut waiting = self.waiting.lock();
        while waiting.freed.front().is_some_and(|(of, _)| !tid.is_before(*of)) {
            let (_, slot) = waiting.freed.pop_front().unwrap();
            waiting.reusable.push(slot);
        }
    }
}

/// The test client.
pub(crate) struct Toy {
    pub(crate) journal: Journal,
    pub(crate) volume: Volume,
    /// The model after each operation; the first entry is the empty volume.
    pub(crate) history: Vec<Model>,
    /// The transaction of each operation.
    pub(crate) tids: Vec<Tid>,
    ordered: Arc<Ordered>,
    random: Random,
    /// Slots that may be used for data.
    reusable: BTreeSet<u64>,
    /// Whether there are data slots. Ordered data and async commit exclude each other: nothing
    /// orders the commit block after the data.
    has_data: bool,
}

impl Toy {
    pub(crate) fn new(
        volume: &Volume,
        device: Arc<dyn Device>,
        env: &Env,
        options: JournalOptions,
        seed: u64,
    ) -> Result<Self, JournalError> {
        let ordered = Arc::new(Ordered {
            device: Arc::downgrade(&device),
            geometry: volume.geometry.clone(),
            waiting: Mutex::default(),
            env: env.clone(),
        });
        let log = volume.log(&device);
        let has_data = !options.async_commit;
        let journal = Journal::open(device, &volume.geometry, log, env, options, ordered.clone())?;
        Ok(Self {
            journal,
            volume: volume.clone(),
            history: vec![vec![Slot::Free; SLOTS as usize]],
            tids: Vec::new(),
            ordered,
            random: Random(seed),
            reusable: (0..SLOTS).collect(),
            has_data,
        })
    }

    fn write_slot(
        &self,
        handle: &Handle<'_>,
        slot: u64,
        op: u64,
        is_new: bool,
    ) -> Result<(), JournalError> {
        let block = self.volume.slot(slot);
        let frame = if is_new { handle.create(block)? } else { self.journal.read(block)? };
        handle.write(&frame)?.copy_from_slice(&self.volume.content(slot, Slot::Meta(op)));
        Ok(())
    }

    /// Runs one operation: changes up to four slots, and the table with them. An error leaves the
    /// model unchanged.
    pub(crate) fn operate(&mut self) -> Result<Tid, JournalError> {
        for slot in std::mem::take(&mut self.ordered.waiting.lock().reusable) {
            self.reusable.insert(slot);
        }
        let op = self.history.len() as u64;
        let mut model = self.history.last().unwrap().clone();
        let handle = self.journal.start(CREDITS)?;
        let tid = handle.tid();
        for _ in 0..=self.random.below(4) {
            let slot = self.random.below(SLOTS);
            let choice = self.random.below(8);
            let now = &mut model[slot as usize];
            match *now {
                Slot::Meta(made) if made == op => {}
                Slot::Meta(_) if choice < 2 => {
                    handle.forget(self.volume.slot(slot))?;
                    self.reusable.remove(&slot);
                    self.ordered.waiting.lock().freed.push_back((tid, slot));
                    *now = Slot::Free;
                }
                Slot::Meta(_) => {
                    *now = Slot::Meta(op);
                    self.write_slot(&handle, slot, op, false)?;
                }
                Slot::Data(_) if choice < 4 => {
                    self.reusable.remove(&slot);
                    self.ordered.waiting.lock().freed.push_back((tid, slot));
                    *now = Slot::Free;
                }
                Slot::Data(_) => {}
                Slot::Free if self.has_data && choice < 4 && self.reusable.contains(&slot) => {
                    *now = Slot::Data(op);
                    let bytes = self.volume.content(slot, *now);
                    let block = self.volume.slot(slot);
                    self.ordered.waiting.lock().data.push((tid, block, bytes));
                }
                // A freed block may be journalled again at once; data must wait for the commit.
                Slot::Free => {
                    let is_waiting = {
                        let waiting = self.ordered.waiting.lock();
                        waiting.data.iter().any(|(_, block, _)| *block == self.volume.slot(slot))
                    };
                    if !is_waiting {
                        *now = Slot::Meta(op);
                        self.write_slot(&handle, slot, op, true)?;
                    }
                }
            }
        }
        let table = self.journal.read(self.volume.table())?;
        encode_table(op, &model, &mut handle.write(&table)?);
        drop(handle);
        self.history.push(model);
        self.tids.push(tid);
        Ok(tid)
    }
}
