//! `journal`: the transactions that a journal still holds.

use std::ffi::OsString;

use extant::inspect::{JournalReport, SuperblockChoice, TransactionSummary, journal_report};

use crate::failure::{At as _, Failure};
use crate::named_view::NamedView;
use crate::say;
use crate::session::Session;
use crate::time;

/// List the transactions in the journal, replayed ones too
///
/// A journal is not erased: transactions stay in it until later ones are written over them. The
/// image is only read.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Image; a journal on a device of its own is found by its UUID
    #[arg(value_name = "IMAGE")]
    image: OsString,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let view = NamedView::open(&self.image, SuperblockChoice::default())?;
        if view.is_journal_device() {
            let why = "a journal device (name the volume that uses it)";
            return Err(Failure::at(&view.name, why));
        }
        let geometry = view.geometry(false).at(&view.name)?;
        let report = journal_report(&view, &geometry).at(&view.name)?;
        match self.json {
            true => session.out.json(&report),
            false => show(&report, session),
        }
    }
}

fn show(report: &JournalReport, session: &mut Session) -> Result<(), Failure> {
    let journal = &report.journal;
    let checksums = report.checksums;
    let size = format!("{} blocks of {} bytes", journal.blocks, journal.block_size);
    say!(session, "Journal   {size}, checksums: {checksums}")?;
    let state = match report.needs_replay {
        true => "transactions must be replayed",
        false => "nothing to replay",
    };
    say!(session, "State     {state}")?;
    let complete = report
        .complete_from
        .map_or("not known".to_owned(), |tid| format!("all transactions from {tid} on"));
    say!(session, "Complete  {complete}")?;
    if report.transactions.is_empty() {
        return Ok(());
    }
    say!(session, "")?;
    say!(
        session,
        "{:>10}  {:16}  {:>7}  {:>7}  {:>7}  {:6}  Copies",
        "TID",
        "Committed (UTC)",
        "Start",
        "Blocks",
        "Revoked",
        "State"
    )?;
    for transaction in &report.transactions {
        say!(
            session,
            "{:>10}  {:16}  {:>7}  {:>7}  {:>7}  {:6}  {}",
            transaction.tid,
            time::short(transaction.committed),
            transaction.start,
            transaction.journal_blocks,
            transaction.revoked,
            state_of(transaction),
            copies_of(transaction)
        )?;
    }
    Ok(())
}

fn state_of(transaction: &TransactionSummary) -> &'static str {
    match (transaction.needs_replay, transaction.is_whole) {
        (true, _) => "replay",
        (false, true) => "whole",
        // Its first blocks may have been written over.
        (false, false) => "part?",
    }
}

fn copies_of(transaction: &TransactionSummary) -> String {
    let kinds = transaction.kinds.iter().map(|(kind, count)| format!("{count} {}", kind.name()));
    let bad = transaction.bad_copies;
    let bad = (bad > 0).then(|| format!("{bad} with wrong checksums"));
    let all: Vec<_> = kinds.chain(bad).collect();
    if all.is_empty() { "none".to_owned() } else { all.join(", ") }
}
