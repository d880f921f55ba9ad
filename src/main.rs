//! The command line. Everything it does lives in the library.

#[cfg(feature = "jemalloc")]
mod allocator_ffi;

fn main() {
    walrelay::cli::main()
}
