//! LVM2: a logical volume whose segments are all linear, found by the metadata on its physical
//! volumes.
//!
//! Sources: lvm(8), pvcreate(8), vgcfgbackup(8), the documentation of libvslvm on the format, and
//! volumes that LVM2 made. Nothing is ever written to the metadata.

mod text;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use crate::partition::{le32, le64};
use extant_device::{Device, DeviceError, LinearDevice, LinearPart, SliceError, errno};
use text::{Section, Value};

const SECTOR: u64 = 512;
/// Sectors at the device's start of which one is the label.
const LABEL_SECTORS: u64 = 4;
const LABEL_MAGIC: &[u8] = b"LABELONE";
const LABEL_TYPE: &[u8] = b"LVM2 001";
/// Bytes at the start of a label that its checksum does not cover.
const LABEL_CHECKED_FROM: usize = 20;
const AREA_HEADER: usize = 512;
const AREA_MAGIC: &[u8] = b" LVM2 x[5A%r0N*>";
/// Places of metadata text in an area's header.
const AREA_COPIES: usize = 4;
const COPY_IGNORED: u32 = 1;
/// The longest metadata that is read: LVM2 itself writes areas of 1 MiB, and some MiB for the
/// largest groups. In memory it takes up to thirty times as much.
const MAX_TEXT: u64 = 16 << 20;
/// Metadata areas of a physical volume (pvcreate: --metadatacopies).
const MAX_AREAS: usize = 2;
/// Bytes of an identifier: 32 letters and digits, without the hyphens of the text.
const ID: usize = 32;

/// A logical volume that was not had.
#[derive(Clone, Debug, thiserror::Error)]
pub enum LvmError {
    /// No label in the first sectors.
    #[error("no LVM2 physical volume: no label in the first {LABEL_SECTORS} sectors")]
    NoLabel,
    /// The metadata are corrupt.
    #[error("{place}: {flaw}")]
    Damaged {
        /// Which part of it.
        place: String,
        /// The mistake.
        flaw: String,
    },
    /// Healthy, and beyond this code.
    #[error("not supported: {0}")]
    Unsupported(String),
    /// No such volume group or logical volume.
    #[error("no {what} {name:?}: there is {}", listed(.known))]
    NotFound {
        /// The object that was asked for.
        what: &'static str,
        /// Its name.
        name: String,
        /// The names that there are.
        known: Vec<String>,
    },
    /// A name is needed where there are several.
    #[error("several {what}s: give {option}=NAME, one of {}", listed(.known))]
    Several {
        /// Of what.
        what: &'static str,
        /// The option that chooses.
        option: &'static str,
        /// Their names.
        known: Vec<String>,
    },
    /// A device of the volume was not given.
    #[error(
        "logical volume {volume:?} needs the physical volume {id} ({hint}), which was not given"
    )]
    MissingDevice {
        /// The volume.
        volume: String,
        /// The identifier in its label.
        id: String,
        /// Where LVM2 saw it last.
        hint: String,
    },
    /// A part of the volume does not lie on its device.
    #[error("logical volume {volume:?}: {error}")]
    OutOfDevice {
        /// The volume.
        volume: String,
        /// The two values that do not match.
        error: SliceError,
    },
    /// The volume may be read only.
    #[error("logical volume {volume:?} is not written: {why}")]
    NotWritable {
        /// The volume.
        volume: String,
        /// Why not.
        why: String,
    },
    /// The metadata was not read.
    #[error("LVM2 metadata: {0}")]
    Device(#[from] DeviceError),
}

impl LvmError {
    /// The number that a system call returns for it.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoLabel | Self::Several { .. } => errno::EINVAL,
            Self::Damaged { .. } | Self::OutOfDevice { .. } => errno::EUCLEAN,
            Self::Unsupported(_) => errno::EOPNOTSUPP,
            Self::NotFound { .. } => errno::ENOENT,
            Self::MissingDevice { .. } => errno::ENODEV,
            Self::NotWritable { .. } => errno::EROFS,
            Self::Device(error) => error.errno(),
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

fn damaged(place: impl Into<String>, flaw: impl Into<String>) -> LvmError {
    LvmError::Damaged { place: place.into(), flaw: flaw.into() }
}

/// The checksum of labels and metadata: CRC-32 with a start of its own, and not inverted.
fn checksum(bytes: &[u8]) -> u32 {
    const START: u32 = 0xf597_a6cf;
    const REFLECTED: u32 = 0xedb8_8320;
    bytes.iter().fold(START, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            crc >> 1 ^ (REFLECTED & 0_u32.wrapping_sub(crc & 1))
        })
    })
}

/// A physical volume: its identifier, and where its metadata areas lie.
struct Label {
    id: [u8; ID],
    areas: Vec<(u64, u64)>,
}

impl Label {
    fn read(device: &dyn Device) -> Result<Self, LvmError> {
        let mut flaw = None;
        for number in 0..LABEL_SECTORS.min(device.size() / SECTOR) {
            let mut sector = [0; SECTOR as usize];
            device.read_at(number * SECTOR, &mut sector)?;
            if !sector.starts_with(LABEL_MAGIC) || sector[24..32] != *LABEL_TYPE {
                continue;
            }
            let place = format!("LVM2 label in sector {number}");
            if le64(&sector, 8) != number {
                flaw = Some(damaged(place, format!("says sector {}", le64(&sector, 8))));
            } else if le32(&sector, 16) != checksum(&sector[LABEL_CHECKED_FROM..]) {
                flaw = Some(damaged(place, "checksum does not match"));
            } else {
                return Self::decode(&sector, &place);
            }
        }
        Err(flaw.unwrap_or(LvmError::NoLabel))
    }

    fn decode(sector: &[u8], place: &str) -> Result<Self, LvmError> {
        let cut = || damaged(place, "lists extend past the sector");
        let header = sector.get(le32(sector, 20) as usize..).ok_or_else(cut)?;
        let id = header.get(..ID).ok_or_else(cut)?.try_into().map_err(|_| cut())?;
        // After the identifier and the device's size: places of data up to an empty one, then
        // places of metadata.
        let mut lists = header
            .get(ID + 8..)
            .ok_or_else(cut)?
            .chunks_exact(16)
            .map(|entry| (le64(entry, 0), le64(entry, 8)));
        lists.find(|(offset, _)| *offset == 0).ok_or_else(cut)?;
        let mut areas = Vec::new();
        loop {
            match lists.next().ok_or_else(cut)? {
                (0, _) => return Ok(Self { id, areas }),
                _ if areas.len() == MAX_AREAS => {
                    return Err(damaged(place, format!("more than {MAX_AREAS} metadata areas")));
                }
                area => areas.push(area),
            }
        }
    }

    /// Where LVM2 itself keeps things.
    fn own(&self) -> impl Iterator<Item = Range<u64>> {
        let areas = self.areas.iter().map(|(start, size)| *start..start.saturating_add(*size));
        areas.chain(std::iter::once(0..LABEL_SECTORS * SECTOR))
    }
}

/// A physical volume that was given.
struct Physical {
    label: Label,
    device: Arc<dyn Device>,
}

/// The text of one metadata area; `None` where it has none.
fn text_of_area(
    device: &dyn Device,
    (start, size): (u64, u64),
) -> Result<Option<Vec<u8>>, LvmError> {
    let place = format!("LVM2 metadata area at byte {start}");
    let fits = start.checked_add(size).is_some_and(|end| end <= device.size());
    if !fits || size < AREA_HEADER as u64 {
        return Err(damaged(
            place,
            format!("area of {size} bytes extends past the end of the device"),
        ));
    }
    let mut header = [0; AREA_HEADER];
    device.read_at(start, &mut header)?;
    if header[4..20] != *AREA_MAGIC {
        return Err(damaged(place, "does not begin like one"));
    }
    if le32(&header, 0) != checksum(&header[4..]) {
        return Err(damaged(place, "header checksum does not match"));
    }
    if le32(&header, 20) != 1 {
        return Err(LvmError::Unsupported(format!("{place} of version {}", le32(&header, 20))));
    }
    if (le64(&header, 24), le64(&header, 32)) != (start, size) {
        return Err(damaged(place, "header gives another location"));
    }
    for copy in header[40..].chunks_exact(24).take(AREA_COPIES) {
        let (offset, length) = (le64(copy, 0), le64(copy, 8));
        if offset == 0 {
            break;
        }
        if le32(copy, 20) & COPY_IGNORED != 0 || length == 0 {
            continue;
        }
        let ring = size - AREA_HEADER as u64;
        if offset < AREA_HEADER as u64 || offset >= size || length > ring || length > MAX_TEXT {
            return Err(damaged(place, format!("{length} bytes of text at byte {offset} of it")));
        }
        // The area is a ring after its header.
        let mut text = vec![0; length as usize];
        let (first, rest) = text.split_at_mut(length.min(size - offset) as usize);
        device.read_at(start + offset, first)?;
        if !rest.is_empty() {
            device.read_at(start + AREA_HEADER as u64, rest)?;
        }
        if checksum(&text) != le32(copy, 16) {
            return Err(damaged(place, "text checksum does not match"));
        }
        while text.last() == Some(&0) {
            text.pop();
        }
        return Ok(Some(text));
    }
    Ok(None)
}

/// A volume group according to its newest metadata.
struct Group {
    name: String,
    /// Groups of the same name are not the same.
    id: String,
    sequence: u64,
    section: Section,
}

impl Group {
    fn parse(text: &[u8]) -> Result<Self, LvmError> {
        let wrong = |flaw: String| damaged("LVM2 metadata", flaw);
        let top = text::parse(text).map_err(wrong)?;
        let mut groups = top.into_sections();
        let (name, section) =
            groups.next().ok_or_else(|| wrong("no volume group in it".to_owned()))?;
        if groups.next().is_some() {
            return Err(wrong("two volume groups in it".to_owned()));
        }
        let sequence = section.number("seqno").map_err(wrong)?;
        let id = section.string("id").map_err(wrong)?.to_owned();
        Ok(Self { name, id, sequence, section })
    }
}

/// Opens a logical volume on its physical volumes. Names may be left out where there is only one.
/// `write` is whether it will be written.
///
/// # Errors
/// A device is no physical volume, or the metadata is damaged; there is no such volume, or it is
/// not linear.
pub fn open(
    devices: &[Arc<dyn Device>],
    group: Option<&str>,
    volume: Option<&str>,
    write: bool,
) -> Result<LinearDevice, LvmError> {
    let mut given: Vec<Physical> = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut flaw = None;
    for device in devices {
        if given.iter().any(|known| Arc::ptr_eq(&known.device, device)) {
            continue;
        }
        let label = Label::read(device)?;
        if given.iter().any(|known| known.label.id == label.id) {
            let flaw = "found on two devices: one is a copy of the other";
            return Err(damaged("LVM2 label", flaw));
        }
        for area in &label.areas {
            let text = text_of_area(device, *area);
            let found = match text.and_then(|text| text.map(|text| Group::parse(&text)).transpose())
            {
                Ok(Some(found)) => found,
                Ok(None) => continue,
                Err(error @ LvmError::Damaged { .. }) => {
                    // Another area may be sound.
                    flaw.get_or_insert(error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let is_same = |group: &&mut Group| group.name == found.name && group.id == found.id;
            match groups.iter_mut().find(is_same) {
                Some(known) if known.sequence >= found.sequence => {}
                Some(known) => *known = found,
                None => groups.push(found),
            }
        }
        given.push(Physical { label, device: device.clone() });
    }
    match (flaw, groups.is_empty()) {
        (Some(flaw), true) => return Err(flaw),
        (Some(flaw), false) => tracing::warn!("{flaw}; another copy is read"),
        (None, true) => return Err(damaged("LVM2 metadata", "not found on any device")),
        (None, false) => {}
    }
    let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
    let at = chosen(("volume group", "vg"), group, &names)?;
    if names.iter().filter(|name| **name == names[at]).count() > 1 {
        let what = format!("two volume groups that are both called {:?}", names[at]);
        return Err(LvmError::Unsupported(what));
    }
    let group = &groups[at].section;
    let wrong = |flaw: String| damaged("LVM2 metadata", flaw);
    let volumes = group.section("logical_volumes").ok();
    let visible: Vec<String> = volumes
        .iter()
        .flat_map(|volumes| volumes.sections())
        .filter(|(_, volume)| volume.has_word("status", "VISIBLE"))
        .map(|(name, _)| name.to_owned())
        .collect();
    let name = &visible[chosen(("logical volume", "lv"), volume, &visible)?];
    let volumes = volumes.ok_or_else(|| wrong("no logical volumes".to_owned()))?;
    let section = volumes.section(name).map_err(wrong)?;
    if write {
        refuse_writing(group, volumes, name, section)?;
    }
    let parts = parts_of(group, name, section, &given)?;
    refuse_overlaps(name, &parts, &given)?;
    LinearDevice::new(parts).map_err(|error| LvmError::OutOfDevice { volume: name.clone(), error })
}

/// The index of the requested name, or of the only one.
fn chosen(
    (what, option): (&'static str, &'static str),
    name: Option<&str>,
    known: &[String],
) -> Result<usize, LvmError> {
    match (name, known) {
        (None, [_]) => Ok(0),
        (None, []) => Err(LvmError::NotFound { what, name: "*".to_owned(), known: Vec::new() }),
        (None, _) => Err(LvmError::Several { what, option, known: known.to_vec() }),
        (Some(name), _) => known.iter().position(|known| known == name).ok_or_else(|| {
            LvmError::NotFound { what, name: name.to_owned(), known: known.to_vec() }
        }),
    }
}

fn segments(volume: &Section) -> impl Iterator<Item = (&str, &Section)> {
    volume.sections().filter(|(name, _)| name.starts_with("segment"))
}

fn refuse_writing(
    group: &Section,
    volumes: &Section,
    name: &str,
    volume: &Section,
) -> Result<(), LvmError> {
    let refused = |why: String| Err(LvmError::NotWritable { volume: name.to_owned(), why });
    if group.has_word("status", "EXPORTED") {
        return refused("its volume group is exported".to_owned());
    }
    if !volume.has_word("status", "WRITE") || !group.has_word("status", "WRITE") {
        return refused("its metadata says that it is only read".to_owned());
    }
    for (other, section) in volumes.sections() {
        for (_, segment) in segments(section) {
            let is = |key| segment.string(key).is_ok_and(|value| value == name);
            if is("origin") || is("external_origin") {
                return refused(format!("{other:?} is a snapshot of it"));
            }
            if is("cow_store") {
                return refused("it holds a snapshot's changes".to_owned());
            }
        }
    }
    Ok(())
}

fn parts_of(
    group: &Section,
    name: &str,
    volume: &Section,
    given: &[Physical],
) -> Result<Vec<LinearPart>, LvmError> {
    let place = format!("logical volume {name:?}");
    let wrong = |flaw: String| damaged(&*place, flaw);
    let extent = group.number("extent_size").map_err(wrong)?;
    // Looked for once a segment: there may be many of both.
    let volumes: BTreeMap<&str, &Section> =
        group.section("physical_volumes").map_err(wrong)?.sections().collect();
    let mut all: Vec<(u64, &Section)> = Vec::new();
    for (_, segment) in segments(volume) {
        all.push((segment.number("start_extent").map_err(wrong)?, segment));
    }
    all.sort_by_key(|(start, _)| *start);
    let count = volume.number("segment_count").map_err(wrong)?;
    if count != all.len() as u64 || all.is_empty() {
        return Err(wrong(format!("{count} segments, and {} are there", all.len())));
    }
    let mut next = 0;
    let mut parts = Vec::new();
    for (start, segment) in all {
        if start != next {
            return Err(wrong(format!("a segment begins at extent {start}, not at {next}")));
        }
        let kind = segment.string("type").map_err(wrong)?;
        if !matches!(kind, "striped" | "linear") {
            return Err(LvmError::Unsupported(format!("{place}: segment of type {kind:?}")));
        }
        let stripes = segment.number("stripe_count").map_err(wrong)?;
        if stripes != 1 {
            return Err(LvmError::Unsupported(format!("{place}: {stripes} stripes")));
        }
        let [Value::String(pv), Value::Number(first)] = segment.list("stripes").map_err(wrong)?
        else {
            return Err(wrong("stripes is not a pair of volume and extent".to_owned()));
        };
        let extents = segment.number("extent_count").map_err(wrong)?;
        let (device, pe_start) = physical(&volumes, name, pv, given)?;
        let sum = || -> Option<(u64, u64)> {
            let offset = first.checked_mul(extent)?.checked_add(pe_start)?.checked_mul(SECTOR)?;
            Some((offset, extents.checked_mul(extent)?.checked_mul(SECTOR)?))
        };
        let (offset, size) = sum().ok_or_else(|| wrong("a segment beyond all bytes".to_owned()))?;
        next = start.checked_add(extents).ok_or_else(|| wrong("too many extents".to_owned()))?;
        parts.push(LinearPart { device, offset, size });
    }
    Ok(parts)
}

/// Refuses segments that lie on each other, or on what is LVM2's own: writing one would change the
/// other.
fn refuse_overlaps(name: &str, parts: &[LinearPart], given: &[Physical]) -> Result<(), LvmError> {
    let wrong = |flaw: &str| Err(damaged(format!("logical volume {name:?}"), flaw));
    for physical in given {
        let is_here = |part: &&LinearPart| Arc::ptr_eq(&part.device, &physical.device);
        let run = |part: &LinearPart| part.offset..part.offset.saturating_add(part.size);
        let mut runs: Vec<Range<u64>> =
            parts.iter().filter(is_here).map(run).filter(|run| !run.is_empty()).collect();
        runs.sort_by_key(|run| run.start);
        if runs.windows(2).any(|two| two[0].end > two[1].start) {
            return wrong("two segments use the same extents");
        }
        let lies_on = |run: &Range<u64>| {
            physical.label.own().any(|own| own.start < run.end && run.start < own.end)
        };
        if runs.iter().any(lies_on) {
            return wrong("a segment overlaps LVM2's metadata");
        }
    }
    Ok(())
}

/// The device of a physical volume, and the sector at which its extents begin.
fn physical(
    volumes: &BTreeMap<&str, &Section>,
    volume: &str,
    name: &str,
    given: &[Physical],
) -> Result<(Arc<dyn Device>, u64), LvmError> {
    let wrong = |flaw: String| damaged(format!("physical volume {name:?}"), flaw);
    let section = volumes.get(name).ok_or_else(|| wrong(format!("no section {name:?}")))?;
    let id = section.string("id").map_err(wrong)?;
    let plain: Vec<u8> = id.bytes().filter(|byte| *byte != b'-').collect();
    let pe_start = section.number("pe_start").map_err(wrong)?;
    match given.iter().find(|known| known.label.id[..] == plain) {
        Some(known) => Ok((known.device.clone(), pe_start)),
        None => Err(LvmError::MissingDevice {
            volume: volume.to_owned(),
            id: id.to_owned(),
            hint: section.string("device").unwrap_or("no hint where").to_owned(),
        }),
    }
}
