//! Parts that unit tests share.

/// How much a test repeats: `usual` in every run, `soak` with `WALRELAY_SOAK=1` (`make soak`).
pub(crate) fn volume<T>(usual: T, soak: T) -> T {
    if std::env::var_os("WALRELAY_SOAK").is_some_and(|value| value == "1") { soak } else { usual }
}
