//! `mke2fs -d`: a file system as mke2fs makes it, filled from a directory or a tar archive.
//!
//! Sizes, features and the number of inodes are those of the same command without `-d`, whatever
//! the tree has. The root directory has the owner and the permissions of the options; its extended
//! attributes, and all of the other files, are those of the source (mke2fs 1.47.0, observed).

use std::path::{Path, PathBuf};

use extant_device::SliceDevice;

use super::error::BuildError;
use super::plan::Plan;
use super::{Destination, tree_warnings, write};
use crate::mkfs::command::MkfsCommand;
use crate::mkfs::{Environment, MkfsError, Options, Program, Prompt, SizeError, WriteRules};
use crate::source::{ReadOptions, RootAttributes, Source, Tree, read_sources};

/// Runs mke2fs with `-d`: `options` name the source.
///
/// # Errors
/// Everything that mke2fs refuses, what build refuses of a tree, and failures of the device. A file
/// that was not there before is removed then.
pub fn mke2fs(
    program: Program,
    options: Options,
    environment: &Environment,
    prompt: &mut dyn Prompt,
) -> Result<(), BuildError> {
    refuse(&options)?;
    let command = MkfsCommand::prepare(program, options, environment, prompt)?;
    let outcome = run(&command, environment, prompt);
    command.clean_up(&outcome);
    outcome
}

/// Refuses options that are not supported together with `-d`.
fn refuse(options: &Options) -> Result<(), BuildError> {
    let refused = [
        (options.bad_blocks_file.is_some() || options.check_blocks > 0, "bad blocks (-c, -l)"),
        (options.super_only, "-S"),
    ];
    match refused.into_iter().find(|(is_given, _)| *is_given) {
        Some((_, what)) => Err(BuildError::Unsupported(what)),
        None => Ok(()),
    }
}

fn run(
    command: &MkfsCommand,
    environment: &Environment,
    prompt: &mut dyn Prompt,
) -> Result<(), BuildError> {
    let params = command.params.clone();
    if params.is_journal_device() {
        return Err(BuildError::Unsupported("journal devices: there is no room for files"));
    }
    if params.huge_files.is_some() {
        return Err(BuildError::Unsupported("huge files of the usage type"));
    }
    let journal = command.external_journal()?;
    let tree = read_tree(command, environment)?;
    let mut plan = Plan::of_params(params, command.identity.clone(), &tree)?;
    if let Some(journal) = &journal {
        journal.name_in(&mut plan.volume);
    }
    command.describe(Some(&plan.volume), prompt);
    for warning in tree_warnings(&plan) {
        prompt.warn(&format!("warning: {warning}"));
    }
    if command.options.dry_run {
        return Ok(());
    }
    let target = command.open(prompt)?;
    let volume = SliceDevice::new(target.device(), command.offset(), plan.bytes());
    let volume = volume.map_err(|short| {
        let end = short.start.saturating_add(short.size);
        MkfsError::from(SizeError::BeyondDevice { end, size: short.whole })
    })?;
    let rules = WriteRules {
        discard: command.discards(&target),
        prezeroed: is_zeroed(command),
        one_thread: target.is_simulated(),
        ..WriteRules::default()
    };
    let to = Destination { path: &command.options.device, device: &volume, rules };
    write(&mut plan, &to, None, &|_| ())?;
    Ok(command.finish(target, journal, prompt)?)
}

/// Whether all of the device reads as zero: a file that is made here, or by an option.
fn is_zeroed(command: &MkfsCommand) -> bool {
    let assumed = command.params.extended.assume_storage_prezeroed;
    command.is_made_here() || assumed.unwrap_or(false)
}

fn read_tree(command: &MkfsCommand, environment: &Environment) -> Result<Tree, BuildError> {
    let options = &command.options;
    let identity = &command.identity;
    let latest = environment.source_date_epoch()?;
    let reading = ReadOptions {
        schemes: environment.schemes.clone(),
        latest: latest.map(u64::cast_signed),
        output: Some(options.device.clone()),
        spool: spool(&options.device),
        all_times: true,
        root: Some(RootAttributes {
            permissions: identity.root_perms,
            owner: identity.root_owner,
            time: identity.time.cast_signed(),
            selinux: identity.root_selinux.clone(),
        }),
        ..ReadOptions::default()
    };
    let name = options.source.as_deref().unwrap_or(Path::new("-"));
    let source = match std::fs::metadata(name) {
        // A directory is copied as it is, whatever it holds.
        Ok(found) if found.is_dir() => Source::Directory(name.to_owned()),
        _ => Source::of(name.as_os_str())?,
    };
    Ok(read_sources(&[source], &reading)?)
}

/// Where an archive that is packed or comes from a pipe is unpacked to: next to the image.
fn spool(image: &Path) -> PathBuf {
    let is_special = std::fs::metadata(image).is_ok_and(|found| !found.is_file());
    let parent = image.parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    if is_special || !parent.is_dir() { std::env::temp_dir() } else { parent.to_owned() }
}
