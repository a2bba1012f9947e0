//! The one error type. Every message is a sentence that says where, what was expected, what was found, how to mend it.

use std::path::PathBuf;

/// What can go wrong with input, files and requests.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file (or directory) is not what it should be.
    #[error("{}: expected {expected}, found {found}; {mend}", .path.display())]
    File {
        /// The file at fault.
        path: PathBuf,
        /// What should have been there.
        expected: String,
        /// What was there.
        found: String,
        /// How to mend it.
        mend: String,
    },
    /// The operating system refused.
    #[error("cannot {action} {}: {source}; {mend}", .path.display())]
    Io {
        /// The verb, such as `read` or `write`.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's own words.
        source: std::io::Error,
        /// How to mend it.
        mend: String,
    },
    /// A request, option or value that does not fit, where no single file is at fault.
    #[error("{what}: expected {expected}, found {found}; {mend}")]
    Invalid {
        /// The option, key or quantity.
        what: String,
        /// What would fit.
        expected: String,
        /// What was given.
        found: String,
        /// How to mend it.
        mend: String,
    },
}

/// The workspace's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// A file that is not what it should be.
    pub fn file(
        path: impl Into<PathBuf>,
        expected: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::File { path: path.into(), expected: expected.into(), found: found.into(), mend: mend.into() }
    }

    /// An input/output failure on `path`.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        let mend = match source.kind() {
            std::io::ErrorKind::NotFound => "check the path",
            std::io::ErrorKind::PermissionDenied => "check the permissions",
            std::io::ErrorKind::StorageFull => "free some disk space and run the command again",
            _ => "check the path and the disk",
        };
        Self::Io { action, path: path.into(), source, mend: mend.into() }
    }

    /// A value or request that does not fit.
    pub fn invalid(
        what: impl Into<String>,
        expected: impl Into<String>,
        found: impl Into<String>,
        mend: impl Into<String>,
    ) -> Self {
        Self::Invalid { what: what.into(), expected: expected.into(), found: found.into(), mend: mend.into() }
    }
}
