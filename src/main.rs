//! The command line. Everything it does lives in the library.

fn main() {}
