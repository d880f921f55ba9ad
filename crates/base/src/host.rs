//! The name of this machine, and whether a host of an address is this machine: then nobody is on the way to it.

use std::net::IpAddr;

/// True for `localhost` and loopback addresses, with or without brackets. Another name may be this
/// machine, too.
pub fn is_own(host: &str) -> bool {
    let bare = host.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(host);
    bare == "localhost"
        || bare.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

/// The name of this machine; empty where there is no `/proc`.
pub fn name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::is_own;

    #[test]
    fn only_loopback_is_this_machine() {
        let own = ["localhost", "127.0.0.1", "127.9.9.9", "::1", "[::1]", "::ffff:127.0.0.1"];
        assert!(own.into_iter().all(is_own));
        let others = ["localhost.example", "10.0.0.1", "kafka", "", "[fe80::1]"];
        assert!(!others.into_iter().any(is_own));
    }
}
