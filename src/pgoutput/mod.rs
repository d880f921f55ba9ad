//! pgoutput, protocol version 1.
