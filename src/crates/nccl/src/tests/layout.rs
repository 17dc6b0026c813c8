//! Numbers and records that must be NCCL's.

use std::ffi::c_int;
#[cfg(target_pointer_width = "64")]
use std::mem::offset_of;

use crate::symbols::{Config, UniqueId};
use crate::transfer::check_peers;
use crate::{NcclError, Part, Version};

#[test]
#[cfg(target_pointer_width = "64")]
fn the_config_is_laid_out_as_in_the_header() {
    let offsets = [
        offset_of!(Config, size),
        offset_of!(Config, magic),
        offset_of!(Config, version),
        offset_of!(Config, blocking),
        offset_of!(Config, cga_cluster_size),
        offset_of!(Config, min_ctas),
        offset_of!(Config, max_ctas),
        offset_of!(Config, net_name),
        offset_of!(Config, split_share),
    ];
    assert_eq!(offsets, [0, 8, 12, 16, 20, 24, 28, 32, 40]);
    assert_eq!(size_of::<Config>(), 48);
}

#[test]
fn the_config_asks_to_block_and_leaves_the_rest_unset() {
    let config = Config::blocking(None);
    assert_eq!((config.size, config.magic), (size_of::<Config>(), 0xcafe_beef));
    assert_eq!((config.version, config.blocking), (21805, 1));
    let unset = [config.cga_cluster_size, config.min_ctas, config.max_ctas, config.split_share];
    assert_eq!(unset, [c_int::MIN; 4]);
    assert!(config.net_name.is_null());
}

#[test]
fn the_config_bounds_thread_blocks_and_never_unsets_a_bound() {
    assert_eq!(Config::blocking(Some(16)).max_ctas, 16);
    // As bits, this one is "unset".
    assert_eq!(Config::blocking(Some(1 << 31)).max_ctas, c_int::MAX);
}

#[test]
fn an_id_keeps_its_bytes_and_does_not_show_them() {
    let bytes = std::array::from_fn(|i| u8::try_from(i).expect("128 bytes"));
    let id = UniqueId::from_bytes(bytes);
    assert_eq!(size_of::<UniqueId>(), 128);
    assert_eq!(id.to_bytes(), bytes);
    assert_eq!(format!("{id:?}"), "UniqueId { .. }");
}

#[test]
fn versions_are_read_from_both_forms_of_the_number() {
    let written =
        [22803, 23203, 21805, 20900, 2804].map(|code| Version::from_code(code).to_string());
    assert_eq!(written, ["2.28.3", "2.32.3", "2.18.5", "2.9.0", "2.8.4"]);
}

#[test]
fn versions_below_2_18_are_too_old() {
    let old = [2804, 20900, 21704, 21799].map(Version::from_code);
    assert!(old.iter().all(|version| *version < Version::OLDEST), "{old:?}");
    let good = [21800, 21805, 22000, 30000].map(Version::from_code);
    assert!(good.iter().all(|version| *version >= Version::OLDEST), "{good:?}");
}

#[test]
fn a_part_for_a_rank_beyond_the_group_is_refused_also_when_empty() {
    let part = |peer| Part { peer, address: 64, bytes: 0 };
    assert_eq!(check_peers(&[part(0), part(2)], 3), Ok(()));
    let refused = check_peers(&[part(0), part(3)], 3);
    assert_eq!(refused, Err(NcclError::NoSuchPeer { peer: 3, world: 3 }));
}
