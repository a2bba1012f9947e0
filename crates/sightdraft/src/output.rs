//! What goes to stdout. `print!` panics when it cannot write; these say so, or end quietly where nobody reads any more.

use std::io::{self, Write};

use serde::Serialize;
use sightdraft_core::{Error, Result};

/// Writes `text` as it is, at once. A reader that went away (`| head`) has what it wanted: no error.
///
/// # Errors
/// A stdout that takes no more, such as a file on a full disk.
pub fn say(text: &str) -> Result<()> {
    write(&mut io::stdout().lock(), text)
}

/// Writes `text` and a line break.
pub fn say_line(text: &str) -> Result<()> {
    say(&format!("{text}\n"))
}

/// Prints `value` as the one JSON object on stdout.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Error::invalid("--json", "finite numbers", e.to_string(), "run without --json"))?;
    say_line(&text)
}

fn write(out: &mut impl Write, text: &str) -> Result<()> {
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Error::io("write", "standard output", error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stdout that answers every write with an error.
    struct Refusing(io::ErrorKind);

    impl Write for Refusing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_and_a_full_disk_is_one() {
        assert!(write(&mut Refusing(io::ErrorKind::BrokenPipe), "x").is_ok());
        let message = write(&mut Refusing(io::ErrorKind::StorageFull), "x").unwrap_err().to_string();
        assert!(message.contains("standard output") && message.contains("disk space"), "{message}");
    }
}
