//! Style and scripts that the console and the page of a comparison share.

pub const PAGE_CSS: &str = include_str!("page.css");
pub const FORMAT_JS: &str = include_str!("format.js");
pub const PLOT_JS: &str = include_str!("plot.js");
