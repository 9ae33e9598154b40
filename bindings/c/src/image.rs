//! Whole images: made, checked.
//!
//! Pointers are as in [`crate::fs`].
#![allow(unsafe_code)]
#![expect(clippy::missing_safety_doc, reason = "the header says once what all pointers are")]

use std::ffi::{CString, c_char, c_int, c_void};

use extant::{Access, Checker, Formatter, HandledFinding, Image, Repairs, RunError, Verdict};

use crate::error::{Failure, call};
use crate::memory;

/// extant_check: nothing is written.
pub const EXTANT_REPAIR_NO: u32 = 0;
/// extant_check: what loses nothing is repaired, as by e2fsck -p.
pub const EXTANT_REPAIR_PREEN: u32 = 1;
/// extant_check: all is repaired, as by e2fsck -y.
pub const EXTANT_REPAIR_YES: u32 = 2;

/// The state of a volume after a check.
#[repr(C)]
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[allow(non_camel_case_types)]
pub enum extant_verdict {
    /// No error was found.
    Clean = 0,
    /// Errors were corrected, and none is left.
    Repaired = 1,
    /// The journal has not been replayed.
    NeedsJournal = 2,
    /// Errors are left.
    Damaged = 3,
    /// There is no volume that can be checked.
    Unreadable = 4,
}

impl From<Verdict> for extant_verdict {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Clean => Self::Clean,
            Verdict::Repaired => Self::Repaired,
            Verdict::NeedsJournal => Self::NeedsJournal,
            Verdict::Damaged => Self::Damaged,
            Verdict::Unreadable => Self::Unreadable,
        }
    }
}

/// The outcome of a check.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_report {
    /// The state of the volume.
    pub verdict: extant_verdict,
    /// The exit code of e2fsck.
    pub exit_code: c_int,
    /// Number of findings.
    pub findings: u64,
    /// Number of findings that were repaired.
    pub repaired: u64,
}

/// Something that a check found. Its strings are valid until the function returns.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(non_camel_case_types)]
pub struct extant_finding {
    /// Name of the rule, which is stable.
    pub code: *const c_char,
    /// One sentence.
    pub text: *const c_char,
    /// The inode that it is about; 0 for none.
    pub inode: u32,
    /// The pass that found it.
    pub pass: u32,
    /// 1 if it was repaired, else 0.
    pub repaired: c_int,
}

/// A function that gets the findings of a check, in their order, in the thread of the call.
#[allow(non_camel_case_types)]
pub type extant_finding_fn = Option<unsafe extern "C" fn(*const extant_finding, *mut c_void)>;

/// Makes a file system: in a new file of size bytes, or if size is 0 on what is there. options are
/// the words of mke2fs's command line, and a null pointer after the last; a null list is empty. A
/// new file gets its name when it is whole.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_mkfs(
    image: *const c_char,
    size: u64,
    options: *const *const c_char,
) -> c_int {
    call(|| {
        // SAFETY: the caller's promise.
        let (image, options) = unsafe { (memory::text(image)?, memory::texts(options)?) };
        let formatter = Formatter::mke2fs_args(options)?;
        if size > 0 {
            formatter.create_file(image, size)?;
            return Ok(0);
        }
        let opened = Image::open(image)?.device(Access::ReadWrite)?;
        formatter.format(&*opened.device)?;
        opened.device.flush()?;
        opened.finish()?;
        Ok(0)
    })
}

/// Checks a volume as e2fsck -f does. repairs: EXTANT_REPAIR_NO, _PREEN or _YES. What is wrong with
/// the volume is in the report and not an error of the call: it fails if the image cannot be
/// opened. on_finding may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn extant_check(
    image: *const c_char,
    repairs: u32,
    on_finding: extant_finding_fn,
    argument: *mut c_void,
    report: *mut extant_report,
) -> c_int {
    call(|| {
        memory::is_there(report)?;
        let repairs = match repairs {
            EXTANT_REPAIR_NO => Repairs::No,
            EXTANT_REPAIR_PREEN => Repairs::Preen,
            EXTANT_REPAIR_YES => Repairs::Yes,
            other => return Err(Failure::invalid(format!("unknown repairs {other}"))),
        };
        let writes = !matches!(repairs, Repairs::No);
        let access = if writes { Access::ReadWrite } else { Access::ReadOnly };
        // SAFETY: the caller's promise.
        let opened = Image::open(unsafe { memory::text(image) }?)?.device(access)?;
        let outcome = Checker::new().repair(repairs).force(true).check_image(&opened);
        opened.finish()?;
        let verdict = Verdict::of(&outcome).into();
        let (exit_code, findings) = match outcome {
            Ok(found) => (found.exit_code(), found.findings),
            Err(RunError { findings, .. }) => (8, findings),
        };
        if let Some(on_finding) = on_finding {
            for found in &findings {
                // SAFETY: the function is one that the header describes, by the caller's promise.
                unsafe { give(found, on_finding, argument) };
            }
        }
        let result = extant_report {
            verdict,
            exit_code: exit_code.into(),
            findings: findings.len() as u64,
            repaired: findings.iter().filter(|found| found.repaired).count() as u64,
        };
        // SAFETY: the caller's promise.
        unsafe { memory::put(report, result) }?;
        Ok(0)
    })
}

/// Passes a finding on.
///
/// # Safety
/// The function takes a finding and the argument.
unsafe fn give(
    found: &HandledFinding,
    on_finding: unsafe extern "C" fn(*const extant_finding, *mut c_void),
    argument: *mut c_void,
) {
    let text = |text: String| CString::new(text.replace('\0', "\u{fffd}")).unwrap_or_default();
    let row = found.finding.code.row();
    let (code, sentence) = (text(row.name.to_owned()), text(found.finding.to_string()));
    let finding = extant_finding {
        code: code.as_ptr(),
        text: sentence.as_ptr(),
        inode: found.finding.subject.inode.map_or(0, |inode| inode.0),
        pass: row.pass.into(),
        repaired: c_int::from(found.repaired),
    };
    // SAFETY: the finding and its strings live to the end of this call.
    unsafe { on_finding(&raw const finding, argument) };
}
