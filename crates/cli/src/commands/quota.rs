//! `extant quota`: what users, groups and projects use, and their limits.

use std::ffi::OsString;
use std::time::UNIX_EPOCH;

use extant::rooms::device::ByteSize;
use extant::rooms::ondisk::RoCompatFeatures;
use extant::rooms::ondisk::quota::{QuotaKind, QuotaRecord};
use extant::rooms::reader::MetadataRead;
use extant::rooms::reader::read::quota::{QuotaReport, report};
use serde::Serialize;

use super::chmod;
use crate::failure::{At, Failure};
use crate::image_path::{ImagePath, image_paths};
use crate::output::{JsonName, human_size};
use crate::owners::Owners;
use crate::reader::Images;
use crate::say;
use crate::session::Session;
use crate::time;
use crate::writable_image::{OpenArgs, WritableImage, WritableImages};

const DAY: u64 = 24 * 60 * 60;
/// Bytes of the unit of limits of space.
const KIB: u64 = 1024;

/// Show and set quotas of users, groups and projects
///
/// The report has the format of repquota -n: sizes in KiB, + for a soft limit that is exceeded, and
/// the rest of its grace time. A volume has quotas after 'extant tune -O quota'.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show users; without -u, -g and -P all kinds that the volume has are shown
    #[arg(short)]
    users: bool,
    /// Show groups
    #[arg(short)]
    groups: bool,
    /// Show projects
    #[arg(short = 'P')]
    projects: bool,
    /// Print sizes in powers of 1024, such as 1.5K
    #[arg(short = 'h')]
    human: bool,
    /// Print JSON, sizes in bytes
    #[arg(long, conflicts_with = "set")]
    json: bool,
    /// Set limits of user:ID, group:ID or project:ID; names are those of the image's /etc/passwd
    /// and /etc/group. Limits that no option gives stay. May be repeated
    #[arg(
        long,
        value_name = "KIND:ID",
        conflicts_with_all = ["users", "groups", "projects", "human"]
    )]
    set: Vec<String>,
    /// Soft limit of space, such as 1G, rounded up to KiB: it may be exceeded for the grace time;
    /// 0 for none
    #[arg(long, value_name = "SIZE", requires = "set")]
    block_soft: Option<ByteSize>,
    /// Hard limit of space; 0 for none
    #[arg(long, value_name = "SIZE", requires = "set")]
    block_hard: Option<ByteSize>,
    /// Soft limit of inodes; 0 for none
    #[arg(long, value_name = "NUMBER", requires = "set")]
    inode_soft: Option<u64>,
    /// Hard limit of inodes; 0 for none
    #[arg(long, value_name = "NUMBER", requires = "set")]
    inode_hard: Option<u64>,
    /// Do not restrict this process (landlock, seccomp)
    #[arg(long)]
    no_sandbox: bool,
    #[command(flatten)]
    open_args: OpenArgs,
    /// File or block device
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<OsString>,
}

/// The quotas of one kind, for `--json`; sizes in bytes, times in seconds.
#[derive(Serialize)]
struct JsonReport {
    image: JsonName,
    kind: &'static str,
    block_grace: u32,
    inode_grace: u32,
    records: Vec<JsonRecord>,
}

#[derive(Serialize)]
struct JsonRecord {
    id: u32,
    space: u64,
    block_soft: u64,
    block_hard: u64,
    /// When the grace time ends; 0 below the soft limit.
    block_grace_end: u64,
    inodes: u64,
    inode_soft: u64,
    inode_hard: u64,
    inode_grace_end: u64,
}

impl From<&QuotaRecord> for JsonRecord {
    fn from(record: &QuotaRecord) -> Self {
        Self {
            id: record.id,
            space: record.space,
            block_soft: record.block_soft.saturating_mul(KIB),
            block_hard: record.block_hard.saturating_mul(KIB),
            block_grace_end: record.block_time,
            inodes: record.inodes,
            inode_soft: record.inode_soft,
            inode_hard: record.inode_hard,
            inode_grace_end: record.inode_time,
        }
    }
}

fn name(kind: QuotaKind) -> &'static str {
    match kind {
        QuotaKind::User => "user",
        QuotaKind::Group => "group",
        QuotaKind::Project => "project",
    }
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let operands = image_paths(None, &self.images)?;
        operands.iter().try_for_each(ImagePath::check_is_image)?;
        if !self.set.is_empty() {
            return self.run_set(&operands, session);
        }
        if let Some(option) = self.open_args.given() {
            return Err(Failure::usage(format_args!("{option}: only valid with --set")));
        }
        let mut images = Images::restricted(&operands, self.no_sandbox, session)?;
        let mut reports = Vec::new();
        for inside in &operands {
            let found = images.of(inside).and_then(|image| {
                let is_kept = image.volume.geometry().has_ro_compat(RoCompatFeatures::QUOTA);
                if !is_kept {
                    return Err(no_quotas(inside));
                }
                let mut found = Vec::new();
                for kind in QuotaKind::ALL.into_iter().filter(|kind| self.shows(*kind)) {
                    match report(&image.volume, kind).at(&inside.name)? {
                        Some(report) => found.push((kind, report)),
                        None if self.asks() => return Err(no_such_quotas(inside, kind)),
                        None => {}
                    }
                }
                Ok(found)
            });
            match found {
                Ok(found) => {
                    reports.extend(found.into_iter().map(|(kind, report)| (inside, kind, report)))
                }
                Err(failure) => session.error(failure)?,
            }
        }
        if self.json {
            let json: Vec<_> = reports
                .iter()
                .map(|(inside, kind, report)| JsonReport {
                    image: inside.name.as_encoded_bytes().into(),
                    kind: name(*kind),
                    block_grace: report.header.block_grace,
                    inode_grace: report.header.inode_grace,
                    records: report.records.iter().map(JsonRecord::from).collect(),
                })
                .collect();
            return session.out.json_array(|element| json.iter().try_for_each(element));
        }
        let now = time::now()?.duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        for (at, (inside, kind, report)) in reports.iter().enumerate() {
            if at > 0 {
                say!(session, "")?;
            }
            self.show(inside, *kind, report, now, session)?;
        }
        Ok(())
    }

    /// Whether the command line names kinds.
    fn asks(&self) -> bool {
        self.users || self.groups || self.projects
    }

    fn shows(&self, kind: QuotaKind) -> bool {
        let is_named = match kind {
            QuotaKind::User => self.users,
            QuotaKind::Group => self.groups,
            QuotaKind::Project => self.projects,
        };
        is_named || !self.asks()
    }

    fn show(
        &self,
        inside: &ImagePath,
        kind: QuotaKind,
        report: &QuotaReport,
        now: u64,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let (header, image) = (&report.header, inside.name.display());
        let title = match kind {
            QuotaKind::User => "User",
            QuotaKind::Group => "Group",
            QuotaKind::Project => "Project",
        };
        say!(session, "*** Report for {} quotas on device {image}", name(kind))?;
        say!(
            session,
            "Block grace time: {}; Inode grace time: {}",
            duration(header.block_grace.into()),
            duration(header.inode_grace.into())
        )?;
        say!(session, "                        Block limits                File limits")?;
        say!(session, "{title:<10}      used    soft    hard  grace    used  soft  hard  grace")?;
        say!(session, "{}", "-".repeat(70))?;
        for record in report.records.iter().filter(|record| is_of_interest(record)) {
            self.show_record(record, now, session)?;
        }
        Ok(())
    }

    fn show_record(
        &self,
        record: &QuotaRecord,
        now: u64,
        session: &mut Session,
    ) -> Result<(), Failure> {
        let space = |kib: u64| match self.human {
            true => human_size(kib.saturating_mul(KIB)),
            false => kib.to_string(),
        };
        let used = match self.human {
            true => human_size(record.space),
            false => record.space.div_ceil(KIB).to_string(),
        };
        let is_over = |used: u64, soft: u64| soft != 0 && used > soft;
        let (blocks, inodes) = (
            is_over(record.space, record.block_soft.saturating_mul(KIB)),
            is_over(record.inodes, record.inode_soft),
        );
        let sign = |is_over: bool| if is_over { '+' } else { '-' };
        let grace = |is_over: bool, end: u64| match end.checked_sub(now) {
            _ if !is_over => String::new(),
            None | Some(0) => "none".to_owned(),
            Some(rest) => duration(rest),
        };
        say!(
            session,
            "{:<10}{}{} {:>7} {:>7} {:>7} {:>6} {:>7} {:>5} {:>5} {:>6}",
            format!("#{}", record.id),
            sign(blocks),
            sign(inodes),
            used,
            space(record.block_soft),
            space(record.block_hard),
            grace(blocks, record.block_time),
            record.inodes,
            record.inode_soft,
            record.inode_hard,
            grace(inodes, record.inode_time)
        )
    }

    fn run_set(&self, operands: &[ImagePath], session: &mut Session) -> Result<(), Failure> {
        let is_given = self.block_soft.is_some()
            || self.block_hard.is_some()
            || self.inode_soft.is_some()
            || self.inode_hard.is_some();
        if !is_given {
            let why = "--set: missing limit: give --block-soft, --block-hard, --inode-soft or --inode-hard";
            return Err(Failure::usage(why));
        }
        let owners = self.set.iter().map(|text| parse_owner(text));
        let owners: Vec<(QuotaKind, &str)> = owners.collect::<Result<_, _>>()?;
        for inside in operands {
            let mut images = WritableImages::new(self.open_args, session);
            let done = images.of(inside).and_then(|image| self.set_in(image, inside, &owners));
            let done = done.or_else(|failure| session.error(failure));
            images.close(session)?;
            done?;
        }
        Ok(())
    }

    /// Sets the limits in one image. All owners are looked up before the first change.
    fn set_in(
        &self,
        image: &WritableImage,
        inside: &ImagePath,
        owners: &[(QuotaKind, &str)],
    ) -> Result<(), Failure> {
        let engine = image.fs.volume().engine().at(&inside.name)?;
        if !image.fs.volume().geometry().has_ro_compat(RoCompatFeatures::QUOTA) {
            return Err(no_quotas(inside));
        }
        let mut records = Vec::new();
        for (kind, text) in owners {
            if engine.info().quota_file(*kind).is_none() {
                return Err(no_such_quotas(inside, *kind));
            }
            let id = match kind {
                QuotaKind::User => chmod::number(image, Owners::Users, text)?,
                QuotaKind::Group => chmod::number(image, Owners::Groups, text)?,
                QuotaKind::Project => text.parse().ok(),
            };
            let invalid = || Failure::usage(format_args!("invalid {} ID: '{text}'", name(*kind)));
            let id = id.filter(|id| *id != u32::MAX).ok_or_else(invalid)?;
            let record = engine.quota_record(*kind, id).at(&inside.name)?;
            let mut record = record.unwrap_or(QuotaRecord { id, ..QuotaRecord::default() });
            let kib = |size: Option<ByteSize>, now| size.map_or(now, |size| size.0.div_ceil(KIB));
            record.block_soft = kib(self.block_soft, record.block_soft);
            record.block_hard = kib(self.block_hard, record.block_hard);
            record.inode_soft = self.inode_soft.unwrap_or(record.inode_soft);
            record.inode_hard = self.inode_hard.unwrap_or(record.inode_hard);
            let is_above = |soft: u64, hard: u64| hard != 0 && soft > hard;
            if is_above(record.block_soft, record.block_hard)
                || is_above(record.inode_soft, record.inode_hard)
            {
                let why = "soft limit is above the hard limit";
                return Err(Failure::at(
                    &inside.name,
                    format_args!("{} {text}: {why}", name(*kind)),
                ));
            }
            records.push((*kind, record));
        }
        for (kind, record) in &records {
            engine.set_quota_limits(*kind, record).at(&inside.name)?;
        }
        Ok(())
    }
}

/// `user:1000`.
fn parse_owner(text: &str) -> Result<(QuotaKind, &str), Failure> {
    let (kind, id) = text.split_once(':').unwrap_or((text, ""));
    let kind = QuotaKind::ALL.into_iter().find(|known| name(*known) == kind);
    match kind.filter(|_| !id.is_empty()) {
        Some(kind) => Ok((kind, id)),
        None => Err(Failure::usage(format_args!(
            "--set {text}: invalid owner: expected user:ID, group:ID or project:ID"
        ))),
    }
}

fn no_quotas(inside: &ImagePath) -> Failure {
    let image = inside.name.display();
    Failure::at(&inside.name, format_args!("no quotas: use 'extant tune -O quota {image}'"))
}

fn no_such_quotas(inside: &ImagePath, kind: QuotaKind) -> Failure {
    let (image, name) = (inside.name.display(), name(kind));
    let how = match kind {
        QuotaKind::User => "-Q usrquota",
        QuotaKind::Group => "-Q grpquota",
        QuotaKind::Project => "-O project -Q prjquota",
    };
    Failure::at(&inside.name, format_args!("no {name} quotas: use 'extant tune {how} {image}'"))
}

/// Whether a record says more than that there was a file once.
fn is_of_interest(record: &QuotaRecord) -> bool {
    *record != QuotaRecord { id: record.id, ..QuotaRecord::default() }
}

/// Seconds as repquota prints a grace time: days, or hours and minutes.
fn duration(seconds: u64) -> String {
    match seconds {
        0..DAY => format!("{:02}:{:02}", seconds / 3600, seconds / 60 % 60),
        seconds => format!("{}days", seconds.saturating_add(DAY / 2) / DAY),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grace_times_read_as_in_repquota() {
        assert_eq!(duration(7 * DAY), "7days");
        assert_eq!(duration(6 * DAY + DAY - 1), "7days");
        assert_eq!(duration(DAY - 1), "23:59");
        assert_eq!(duration(3 * 3600 + 120), "03:02");
    }

    #[test]
    fn owners_have_a_kind_and_an_id() {
        assert_eq!(parse_owner("user:1000").unwrap(), (QuotaKind::User, "1000"));
        assert_eq!(parse_owner("project:7").unwrap(), (QuotaKind::Project, "7"));
        for text in ["user", "user:", "1000", "other:1"] {
            assert_eq!(parse_owner(text).unwrap_err().code(), 2, "{text}");
        }
    }
}
