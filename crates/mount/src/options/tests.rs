use super::*;

fn parsed(list: &str) -> Result<MountOptions, OptionError> {
    parse_options([list])
}

#[test]
fn names_of_the_kernels_ext4_mean_the_same() {
    let options =
        parsed("ro,noatime,data=writeback,commit=30,nobarrier,journal_checksum,errors=remount-ro");
    let expected = MountOptions {
        read_only: true,
        atime: Atime::Never,
        data: Some(DataMode::Writeback),
        commit: Duration::from_secs(30),
        barriers: false,
        journal_checksum: true,
        errors: Some(ErrorPolicy::RemountReadOnly),
        ..MountOptions::default()
    };
    assert_eq!(options, Ok(expected));
    let options = parsed("nomballoc,stripe=16,discard");
    let expected = MountOptions {
        allocator: AllocatorKind::Plain,
        stripe: Some(16),
        discard: true,
        ..MountOptions::default()
    };
    assert_eq!(options, Ok(expected));
    assert_eq!(parsed("nomballoc,discard,mballoc,nodiscard"), Ok(MountOptions::default()));
}

#[test]
fn inode_tables_are_read_by_powers_of_two() {
    let blocks = |list| parsed(list).map(|all| all.inode_readahead_blks);
    assert_eq!(blocks("inode_readahead_blks=64"), Ok(Some(64)));
    assert_eq!(blocks("inode_readahead_blks=0"), Ok(Some(0)));
    let option = "inode_readahead_blks=48";
    assert_eq!(blocks(option), Err(bad_value(option, "0 or a power of two")));
    let name = "inode_readahead_blks";
    assert_eq!(blocks(name), Err(bad_value(name, "needs a value")));
}

#[test]
fn memory_is_a_size_that_is_enough() {
    assert_eq!(parsed("memory=64M").map(|all| all.memory), Ok(Some(64 << 20)));
    assert_eq!(parsed("memory=8M"), Err(bad_value("memory=8M", "at least 16M is required")));
    assert_eq!(parsed("memory=much"), Err(bad_value("memory=much", "invalid size")));
}

#[test]
fn threads_are_bounded() {
    assert_eq!(parsed("threads=1024").map(|all| all.threads), Ok(Some(1024)));
    assert_eq!(parsed("threads=1025"), Err(bad_value("threads=1025", "at most 1024")));
    assert_eq!(parsed("threads=0"), Err(bad_value("threads=0", "at least 1")));
}

#[test]
fn the_later_of_two_options_holds() {
    assert_eq!(
        parse_options(["ro,commit=1", "rw,commit=0"]).map(|all| all.commit),
        Ok(DEFAULT_COMMIT)
    );
    assert_eq!(parsed("user,exec").map(|all| (all.suid, all.exec)), Ok((Some(false), true)));
    assert_eq!(parsed("nowriteback_cache").map(|all| all.writeback_cache), Ok(false));
    assert_eq!(parsed("nowriteback_cache,writeback_cache"), Ok(MountOptions::default()));
}

#[test]
fn what_fstab_carries_for_others_is_nothing_to_us() {
    let line = "defaults,noauto,nofail,_netdev,x-systemd.automount,comment=here";
    assert_eq!(parsed(line), Ok(MountOptions::default()));
}

#[test]
fn options_are_refused_by_name() {
    let unknown = |name: &str| Err(OptionError::Unknown(name.to_owned()));
    assert_eq!(parsed("rw,fast"), unknown("fast"));
    assert_eq!(parsed("fast=1"), unknown("fast=1"));
    assert_eq!(parsed("stripe=wide"), Err(bad_value("stripe=wide", "not a number")));
    assert_eq!(parsed("stripe"), Err(bad_value("stripe", "needs a value")));
    assert_eq!(parsed("sb=2").map(drop), Err(OptionError::Conflict("sb=", "rw")));
    let panic = OptionError::Refused { option: "errors=panic".to_owned(), reason: PANIC };
    assert_eq!(parsed("errors=panic"), Err(panic));
    assert_eq!(parsed("ro=1"), Err(bad_value("ro=1", "takes no value")));
    assert_eq!(parsed("commit=soon"), Err(bad_value("commit=soon", "not a number")));
    assert_eq!(parsed("data=often"), Err(bad_value("data=often", "ordered, writeback or journal")));
}

#[test]
fn options_that_exclude_each_other_are_refused_together() {
    let conflict = |a, b| Err(OptionError::Conflict(a, b));
    assert_eq!(
        parsed("journal_async_commit,data=ordered"),
        conflict("data=ordered", "journal_async_commit")
    );
    assert_eq!(parsed("norecovery"), conflict("norecovery", "rw"));
    assert_eq!(parsed("remount,rw"), conflict("remount", "rw"));
    assert!(parsed("remount,ro").is_ok() && parsed("ro,noload").is_ok());
    let shown =
        "rw,remount,ro,user_id=0,group_id=0,default_permissions,allow_other,max_read=1048576";
    assert!(parsed(shown).is_ok_and(|all| all.remount && all.read_only));
    assert_eq!(parsed("user_id=0"), Err(OptionError::Unknown("user_id=0".to_owned())));
}

#[test]
fn quota_options_choose_whose_limits_are_enforced() {
    let limits = |list| parsed(list).map(|all| all.enforced_limits);
    assert_eq!(limits("rw"), Ok(None));
    assert_eq!(limits("quota"), Ok(Some([true, false, false])));
    assert_eq!(limits("noquota,grpquota,prjquota"), Ok(Some([false, true, true])));
    assert_eq!(limits("usrquota,noquota"), Ok(Some([false; 3])));
}

#[test]
fn batch_times_are_microseconds_and_off_by_default() {
    let times = |list| parsed(list).map(|all| (all.batch_time().min, all.batch_time().max));
    let micros = Duration::from_micros;
    assert_eq!(times("rw"), Ok((micros(0), micros(0))));
    assert_eq!(times("max_batch_time=9"), Ok((micros(0), micros(9))));
    assert_eq!(times("min_batch_time=7"), Ok((micros(7), DEFAULT_MAX_BATCH)));
}

#[test]
fn a_journals_device_is_named_by_number_or_path() {
    let device = |list| parsed(list).map(|all| all.journal_dev);
    assert_eq!(device("journal_path=/dev/a,journal_dev=0x701"), Ok(Some(0x701)));
    assert_eq!(device("journal_dev=1793"), Ok(Some(0x701)));
    assert_eq!(device("journal_dev=03401"), Ok(Some(0x701)));
    assert_eq!(device("journal_dev=1793,journal_path=/dev/a"), Ok(None));
}

#[test]
fn what_the_kernel_has_removed_is_accepted_and_named() {
    let removed = |list| parsed(list).map(|all| all.removed);
    assert_eq!(removed("rw,noatime"), Ok(Vec::new()));
    let expected = ["orlov", "i_version", "check=none"].map(str::to_owned).to_vec();
    assert_eq!(removed("orlov,rw,i_version,check=none"), Ok(expected));
    for name in REMOVED {
        assert_eq!(removed(name), Ok(vec![(*name).to_owned()]));
        assert!(!ALREADY_SO.contains(name), "{name}");
    }
    assert_eq!(removed("orlov=1"), Err(bad_value("orlov=1", "takes no value")));
}

/// As the kernel on a device without memory to be mapped, and without quotaon(8).
#[test]
fn values_that_ask_for_nothing_are_accepted() {
    for list in ["dax=never", "dax=inode", "usrjquota=,grpjquota=", "jqfmt=vfsv1", "iversion"] {
        assert_eq!(parsed(list), Ok(MountOptions::default()), "{list}");
    }
    let refused =
        |option: &str, reason| Err(OptionError::Refused { option: option.to_owned(), reason });
    assert_eq!(parsed("dax"), refused("dax", DAX));
    assert_eq!(parsed("dax=always"), refused("dax=always", DAX));
    assert_eq!(parsed("usrjquota=a,jqfmt=vfsv0"), refused("usrjquota=a", QUOTA_FILES));
    let option = "jqfmt=vfsv2";
    assert_eq!(parsed(option), Err(bad_value(option, "vfsold, vfsv0 or vfsv1")));
}

#[test]
fn a_journals_priority_is_one_of_eight() {
    let priority = |list| parsed(list).map(|all| all.journal_io_priority);
    assert_eq!(priority("journal_ioprio=0"), Ok(Some(0)));
    assert_eq!(priority("journal_ioprio=7"), Ok(Some(7)));
    for option in ["journal_ioprio=8", "journal_ioprio=-1", "journal_ioprio=x"] {
        assert_eq!(priority(option), Err(bad_value(option, "0 to 7")));
    }
}

#[test]
fn lost_data_end_changes_if_requested() {
    let aborts = |list| parsed(list).map(|all| all.aborts_on_lost_data);
    assert_eq!(aborts("data_err=abort"), Ok(true));
    assert_eq!(aborts("data_err=abort,data_err=ignore"), Ok(false));
    let option = "data_err=panic";
    assert_eq!(aborts(option), Err(bad_value(option, "abort or ignore")));
}

#[test]
fn lists_of_names_do_not_overlap() {
    for (name, reason) in REFUSED {
        assert!(!ALREADY_SO.contains(name) && !REMOVED.contains(name));
        assert!(!FOR_OTHERS.contains(name), "{name}");
        let refused = OptionError::Refused { option: (*name).to_owned(), reason };
        assert_eq!(parsed(name), Err(refused));
        let fresh = MountOptions::default().take_word(name);
        assert_eq!(fresh, Err(OptionError::Unknown((*name).to_owned())));
    }
}
