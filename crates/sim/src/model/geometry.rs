//! The places of bytes on platters, and the time for the arm and the platter to bring them under a
//! head.
//!
//! Everything is in nanoseconds of the drive's own clock, whole numbers, so that the same requests
//! take the same time on every machine. The platter's angle under byte `b` is the time at which a
//! head that reads everything from byte 0 on would come to it, modulo a revolution: tracks are
//! skewed so that reading on never waits, as they are on real drives.

use super::preset::Rotating;

const SECOND: u64 = 1_000_000_000;

/// Tracks of one length.
#[derive(Clone, Debug)]
struct Zone {
    /// First byte.
    start: u64,
    /// When reading everything from byte 0 on comes to it.
    time: u64,
    /// First cylinder.
    cylinder: u64,
    /// Bytes a second.
    rate: u64,
    /// Bytes of a cylinder.
    cylinder_bytes: u64,
}

/// The places of a drive.
#[derive(Clone, Debug)]
pub(super) struct Places {
    zones: Vec<Zone>,
    cylinders: u64,
    revolution: u64,
    seek: [u64; 3],
}

/// `value * times / by`, without overflow between. Drives of exabytes take longer than nanoseconds
/// can count: their far end is at the maximum.
fn scaled(value: u64, times: u64, by: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(times) / u128::from(by.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// The seek over a third of the cylinders with which the curve's mean over all pairs of cylinders
/// is the drive's average: the mean is a fifth of the shortest seek, 88/135 of this one and 4/27 of
/// the longest.
fn at_a_third(drive: &Rotating) -> u64 {
    let rest = drive.seek_average.saturating_sub(drive.seek_track / 5 + drive.seek_full * 4 / 27);
    scaled(rest, 135, 88).clamp(drive.seek_track, drive.seek_full)
}

impl Places {
    /// The zones of a drive of `bytes` bytes.
    pub(super) fn new(drive: &Rotating, capacity: u64) -> Self {
        let revolution = 60 * SECOND / drive.rpm;
        let count = drive.zones.max(2);
        let (mut zones, mut time, mut cylinder) = (Vec::new(), 0, 0);
        for zone in 0..count {
            let start = scaled(capacity, zone, count);
            let end = scaled(capacity, zone + 1, count);
            let rate = drive.outer - scaled(drive.outer - drive.inner, zone, count - 1);
            let cylinder_bytes = scaled(rate, revolution, SECOND) * drive.heads;
            zones.push(Zone { start, time, cylinder, rate, cylinder_bytes });
            time = time.saturating_add(scaled(end - start, SECOND, rate));
            cylinder += (end - start).div_ceil(cylinder_bytes);
        }
        let seek = [drive.seek_track, at_a_third(drive), drive.seek_full];
        Self { zones, cylinders: cylinder.max(2), revolution, seek }
    }

    fn zone(&self, byte: u64) -> &Zone {
        &self.zones[self.zones.partition_point(|zone| zone.start <= byte).saturating_sub(1)]
    }

    /// When reading everything from byte 0 on comes to a byte.
    fn time_of(&self, byte: u64) -> u64 {
        let zone = self.zone(byte);
        zone.time.saturating_add(scaled(byte - zone.start, SECOND, zone.rate))
    }

    /// How long the bytes between two places pass under the heads.
    pub(super) fn transfer(&self, from: u64, to: u64) -> u64 {
        self.time_of(to).saturating_sub(self.time_of(from))
    }

    /// How far reading on from a byte comes in some time.
    pub(super) fn reach(&self, from: u64, time: u64) -> u64 {
        let end = self.time_of(from).saturating_add(time);
        let zone = &self.zones[self.zones.partition_point(|zone| zone.time <= end) - 1];
        zone.start.saturating_add(scaled(end - zone.time, zone.rate, SECOND)).max(from)
    }

    fn cylinder(&self, byte: u64) -> u64 {
        let zone = self.zone(byte);
        zone.cylinder + (byte - zone.start) / zone.cylinder_bytes
    }

    /// The seek curve: by the square root of the way up to a third of all cylinders, then straight
    /// on.
    pub(super) fn seek(&self, cylinders: u64) -> u64 {
        let [track, middle, full] = self.seek;
        let third = (self.cylinders / 3).max(2);
        match cylinders {
            0 => 0,
            near if near <= third => {
                let way = (near - 1) as f64 / (third - 1) as f64;
                track + ((middle - track) as f64 * way.sqrt()) as u64
            }
            far => middle + scaled(full - middle, far - third, self.cylinders - third),
        }
    }

    /// The time, at a moment, to move from the end of byte `from` to byte `to`: the seek, settling,
    /// the rotation.
    pub(super) fn position(&self, now: u64, from: u64, to: u64, settle: u64) -> u64 {
        let way = self.cylinder(from).abs_diff(self.cylinder(to));
        let seek = self.seek(way) + if way > 0 { settle } else { 0 };
        let angle = (now + seek) % self.revolution;
        let target = self.time_of(to) % self.revolution;
        seek + (target + self.revolution - angle) % self.revolution
    }

    /// Cylinders of the drive.
    #[cfg(test)]
    pub(super) fn cylinders(&self) -> u64 {
        self.cylinders
    }
}
