//! Progress bars: on stderr, and only when it is a terminal.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Redraws per second: enough to look alive, too few to cost anything.
const REDRAWS: u8 = 8;
const LAYOUT: &str = "{prefix} [{bar:24}] {human_pos}/{human_len} {per_sec}, {eta} left {wide_msg}";

/// A bar of `len` units, headed `what`, with rate and time left. `message` is set by the caller as work goes on. Indicatif
/// draws nothing where stderr is no terminal.
pub fn bar(len: u64, what: &'static str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(len), ProgressDrawTarget::stderr_with_hz(REDRAWS));
    bar.set_prefix(what);
    match ProgressStyle::with_template(LAYOUT) {
        Ok(style) => bar.with_style(style.progress_chars("=> ")),
        Err(_) => bar,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_styles() {
        let bar = bar(3, "steps");
        bar.inc(2);
        assert_eq!((bar.position(), bar.length(), bar.prefix().as_str()), (2, Some(3), "steps"));
        assert!(ProgressStyle::with_template(LAYOUT).is_ok(), "a broken layout would fall back in silence");
    }
}
