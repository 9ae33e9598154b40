//! `extant recover`: replays the journals of images, without a check.

use std::ffi::{OsStr, OsString};

use extant::{Access, Image, Recovered};
use serde::Serialize;

use crate::failure::{At as _, Failure};
use crate::journal_device::refuse_other_content;
use crate::output::JsonName;
use crate::say;
use crate::session::Session;

/// Replay the journals of images, and do nothing else
///
/// It takes as long as the journal needs, however large the volume is. Where a journal is damaged,
/// the volume is marked for a check.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print a line of JSON for each image
    #[arg(long)]
    json: bool,
    /// File or block device; a journal on a device of its own is found by its UUID
    #[arg(value_name = "IMAGE", required = true)]
    images: Vec<OsString>,
}

/// The outcome for one image.
#[derive(Serialize)]
struct Line {
    image: JsonName,
    /// Whether the image has a journal.
    journal: bool,
    transactions: u32,
    fast_commits: u32,
    blocks: u64,
    /// Number of damaged places of the log.
    damage: usize,
    /// Why the journal was not replayed.
    error: Option<String>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        for image in &self.images {
            let outcome = recover(image);
            if self.json {
                session.out.json_line(&Line::new(image, &outcome))?;
            } else if let Ok(recovered) = &outcome {
                let name = image.to_string_lossy();
                say!(session, "{name}: {}", sentence(recovered.as_ref()))?;
            }
            match outcome {
                Err(failure) => session.error(failure)?,
                Ok(Some(recovered)) if !recovered.damage.is_empty() => {
                    let what = "the journal is damaged: check the volume (extant fsck)";
                    session.error(Failure::at(image, what))?;
                }
                Ok(_) => {}
            }
        }
        Ok(())
    }
}

fn recover(image: &OsStr) -> Result<Option<Recovered>, Failure> {
    // Errors of an open name the image already.
    let opened = Image::open(image).map_err(Failure::new)?;
    let opened = opened.device(Access::ReadWrite).map_err(Failure::new)?;
    refuse_other_content(image, &*opened.device)?;
    let recovered = extant::recover(&opened).at(image)?;
    opened.finish().at(image)?;
    Ok(recovered)
}

fn sentence(recovered: Option<&Recovered>) -> String {
    let Some(recovered) = recovered else { return "no journal".to_owned() };
    let Recovered { transactions, fast_commits, blocks, .. } = recovered;
    if *transactions == 0 && *fast_commits == 0 {
        return "nothing to replay".to_owned();
    }
    let fast = match fast_commits {
        0 => String::new(),
        count => format!(" and {count} fast commits"),
    };
    format!("{transactions} transactions{fast} replayed, {blocks} blocks written")
}

impl Line {
    fn new(image: &OsStr, outcome: &Result<Option<Recovered>, Failure>) -> Self {
        let recovered = outcome.as_ref().ok().and_then(Option::as_ref);
        Self {
            image: image.as_encoded_bytes().into(),
            journal: recovered.is_some(),
            transactions: recovered.map_or(0, |it| it.transactions),
            fast_commits: recovered.map_or(0, |it| it.fast_commits),
            blocks: recovered.map_or(0, |it| it.blocks),
            damage: recovered.map_or(0, |it| it.damage.len()),
            error: outcome.as_ref().err().map(ToString::to_string),
        }
    }
}
