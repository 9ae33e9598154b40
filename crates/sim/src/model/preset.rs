//! Drives by name, with numbers of public data sheets and manuals.

/// A kind of drive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Preset {
    /// Its name in URLs.
    pub name: &'static str,
    /// The drive.
    pub drive: &'static str,
    /// Where its figures are from.
    pub source: &'static str,
    /// Bytes that it holds; a device that is larger is a larger drive of the same speed.
    pub capacity: u64,
    /// Bytes a second between drive and host.
    pub interface: u64,
    /// Nanoseconds of a command in addition to all other costs.
    pub overhead: u64,
    /// The kind of drive.
    pub kind: DriveKind,
}

/// The parts of a drive.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum DriveKind {
    /// Platters and an arm.
    Rotating(Rotating),
    /// Flash memory.
    Flash(Flash),
}

/// Platters and an arm. Times are nanoseconds, rates bytes a second.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Rotating {
    /// Revolutions a minute.
    pub rpm: u64,
    /// Surfaces.
    pub heads: u64,
    /// Zones of tracks that hold the same.
    pub zones: u64,
    /// Sustained rate of the outermost zone, where block 0 is.
    pub outer: u64,
    /// Sustained rate of the innermost zone.
    pub inner: u64,
    /// Seek to the next cylinder, for reading.
    pub seek_track: u64,
    /// Average seek, for reading.
    pub seek_average: u64,
    /// Seek over all cylinders, for reading.
    pub seek_full: u64,
    /// The additional time of a seek before a write.
    pub write_settle: u64,
    /// Memory for data that are read ahead: number of segments, and bytes of each.
    pub segments: (usize, u64),
    /// Memory for what is still to be written.
    pub write_cache: u64,
    /// Requests among which the next one is chosen.
    pub depth: usize,
}

/// Flash memory. Times are nanoseconds, rates bytes a second.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Flash {
    /// Sequential reading.
    pub read: u64,
    /// Sequential writing.
    pub write: u64,
    /// A read of 4 KiB alone.
    pub read_latency: u64,
    /// A write of 4 KiB alone.
    pub write_latency: u64,
    /// Reads of 4 KiB a second with many at once.
    pub read_most: u64,
    /// Writes of 4 KiB a second with many at once.
    pub write_most: u64,
    /// A flush, in addition to the writes that are still queued.
    pub flush: u64,
}

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const MB: u64 = 1_000_000;
const MIB: u64 = 1 << 20;

/// All of them.
pub const PRESETS: [Preset; 4] = [
    Preset {
        name: "hdd7200",
        drive: "Seagate Barracuda 7200.11, 1.5 TB (ST31500341AS)",
        source: "Seagate, Barracuda 7200.11 data sheet (2008): 7200 rpm, 32 MB, 120 MB/s at most; the average seeks of \
                 Hitachi's 7K1000.C (8.5 ms, 9.5 for writing) and the ratio of inner to outer zone of its 7K500; the shortest and \
                 longest seek are assumptions",
        capacity: 1_500_301_910_016,
        interface: 300 * MB,
        overhead: 300 * US,
        kind: DriveKind::Rotating(Rotating {
            rpm: 7200,
            heads: 8,
            zones: 30,
            outer: 120 * MB,
            inner: 58 * MB,
            seek_track: MS,
            seek_average: 8500 * US,
            seek_full: 17 * MS,
            write_settle: MS,
            segments: (16, MIB),
            write_cache: 16 * MIB,
            depth: 32,
        }),
    },
    Preset {
        name: "hdd7200-2005",
        drive: "Hitachi Deskstar 7K500, 500 GB",
        source: "Hitachi, Deskstar 7K500 specification, 4.4.4 and 4.4.5: 64.8 MB/s in zone 0, 31.0 in zone 29, 16 MiB in \
                 0.29 and 0.59 s, 4096 random reads in 55.5 s, from which 8.2 ms of seek and 0.5 ms a command come; the shortest and \
                 longest seek are assumptions",
        capacity: 500_107_862_016,
        interface: 300 * MB,
        overhead: 500 * US,
        kind: DriveKind::Rotating(Rotating {
            rpm: 7200,
            heads: 10,
            zones: 30,
            outer: 64_800_000,
            inner: 31 * MB,
            seek_track: 800 * US,
            seek_average: 8200 * US,
            seek_full: 17 * MS,
            write_settle: MS,
            segments: (8, 512 << 10),
            write_cache: 4 * MIB,
            depth: 32,
        }),
    },
    Preset {
        name: "ssd-sata",
        drive: "Samsung 860 EVO, 1 TB",
        source: "Samsung, SSD 860 EVO data sheet (2018): 550 and 520 MB/s, 98,000 and 90,000 requests of 4 KiB a second with \
                 32 at once; 10,000 and 42,000 one after the other, and the flush, are assumptions",
        capacity: 1_000_204_886_016,
        interface: 600 * MB,
        overhead: 0,
        kind: DriveKind::Flash(Flash {
            read: 550 * MB,
            write: 520 * MB,
            read_latency: 100 * US,
            write_latency: 23_800,
            read_most: 98_000,
            write_most: 90_000,
            flush: MS,
        }),
    },
    Preset {
        name: "nvme",
        drive: "Samsung 970 EVO Plus, 1 TB",
        source: "Samsung, NVMe SSD 970 EVO Plus data sheet (2019): 3,500 and 3,300 MB/s, 19,000 and 60,000 requests of 4 KiB a \
                 second one after the other, 600,000 and 550,000 with 32 at once; the flush is an assumption",
        capacity: 1_000_204_886_016,
        interface: 3_940 * MB,
        overhead: 0,
        kind: DriveKind::Flash(Flash {
            read: 3_500 * MB,
            write: 3_300 * MB,
            read_latency: 52_600,
            write_latency: 16_700,
            read_most: 600_000,
            write_most: 550_000,
            flush: MS,
        }),
    },
];

impl Preset {
    /// The one of that name.
    pub fn named(name: &str) -> Option<&'static Self> {
        static ALL: [Preset; 4] = PRESETS;
        ALL.iter().find(|preset| preset.name == name)
    }

    /// All names, for messages.
    pub fn names() -> String {
        PRESETS.map(|preset| preset.name).join(", ")
    }
}
