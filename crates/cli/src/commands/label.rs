//! `e2label`: prints the label of a volume, or changes it. `extant tune -L` does the latter.

use std::ffi::OsString;

use extant::inspect::SuperblockChoice;

use super::tune;
use crate::failure::Failure;
use crate::named_view::NamedView;
use crate::parse;
use crate::session::Session;

/// Show or change the label of a file system, as e2label does
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// File or block device
    #[arg(value_name = "IMAGE")]
    image: OsString,
    /// The new label, at most 16 bytes
    #[arg(value_name = "LABEL")]
    label: Option<OsString>,
}

impl Args {
    pub(crate) fn run(self, session: &mut Session) -> Result<(), Failure> {
        let Some(label) = self.label else { return show(&self.image, session) };
        // A label may begin as options do.
        let mut option = OsString::from("-L=");
        option.push(&label);
        let is_empty = label.is_empty();
        let option = if is_empty { vec!["-L".into(), label] } else { vec![option] };
        let words = [vec!["e2label".into()], option, vec!["--".into(), self.image]].concat();
        let tune = parse::parse_alone::<tune::Args>("e2label", words);
        // tune2fs prints its version first, e2label nothing.
        let mut silent = Session::new(session.called.clone(), false);
        tune.map_err(Failure::usage)?.run(&mut silent)?;
        silent.out.flush()
    }
}

fn show(image: &OsString, session: &mut Session) -> Result<(), Failure> {
    let view = NamedView::open(image, SuperblockChoice::default())?;
    session.out.bytes(view.superblock.label())?;
    session.out.bytes(b"\n")
}
