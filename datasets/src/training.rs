//! The project's own training file: one conversation a line, written as the target answers, readable after a kill.

use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sightdraft_core::{Error, Message, Result};

use crate::conversation::image_file;
use crate::{Conversation, ImageSource, lines};

const WHAT: &str = "training conversations, one a line (`id`, `messages`, and optionally `images`, `answer_ids`)";

/// A line.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    id: String,
    messages: Vec<Message>,
    /// Relative to the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    images: Vec<PathBuf>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    answer_ids: Option<Vec<u32>>,
}

/// Reads a training file.
///
/// # Errors
/// A missing file, a line that does not parse or has unknown keys, or a missing image.
pub fn read(path: &Path) -> Result<Vec<Conversation>> {
    let folder = folder(path);
    lines::read::<Line>(path, WHAT)?
        .into_iter()
        .map(|(at, line)| {
            if line.messages.is_empty() {
                return Err(lines::fault(path, at, WHAT, "a conversation without messages"));
            }
            let images = line.images.iter().map(|image| image_file(folder, &image.to_string_lossy(), path));
            Ok(Conversation {
                images: images.collect::<Result<_>>()?,
                id: line.id,
                messages: line.messages,
                answer_ids: line.answer_ids,
                ..Conversation::default()
            })
        })
        .collect()
}

/// Adds conversations to a training file, one whole line at a time.
pub struct Writer {
    file: File,
    path: PathBuf,
    written: HashSet<String>,
}

impl Writer {
    /// Opens `path` to go on, or makes it. A last line that a kill cut short is removed.
    ///
    /// # Errors
    /// A file that cannot be opened or whose whole lines do not parse; something else than a file.
    pub fn open(path: &Path) -> Result<Self> {
        let fail = |e| Error::io("write", path, e);
        // A device or a pipe may never end, and what was written there cannot be read back.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            let mend = "name a file, there already or not";
            return Err(Error::file(path, "a file to add lines to", "a folder, device or pipe", mend));
        }
        std::fs::create_dir_all(folder(path)).map_err(fail)?;
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(fail)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(fail)?;
        let whole = bytes.iter().rposition(|&b| b == b'\n').map_or(0, |at| at + 1);
        bytes.truncate(whole);
        let written = if whole == 0 { HashSet::new() } else { ids(path, &bytes)? };
        file.set_len(whole as u64).map_err(fail)?;
        file.seek(SeekFrom::End(0)).map_err(fail)?;
        Ok(Self { file, path: path.to_path_buf(), written })
    }

    /// Whether a conversation of that id is in the file.
    pub fn has(&self, id: &str) -> bool {
        self.written.contains(id)
    }

    /// How many conversations the file holds.
    pub fn len(&self) -> usize {
        self.written.len()
    }

    /// Whether the file holds none.
    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }

    /// Adds a conversation. Drawn images become PNG files in `images` beside the file.
    ///
    /// # Errors
    /// An id that is there already, or a disk that refuses.
    pub fn push(&mut self, conversation: &Conversation) -> Result<()> {
        if self.has(&conversation.id) {
            let found = format!("`{}` again", conversation.id);
            return Err(Error::file(&self.path, "each id once", found, "give every conversation its own id"));
        }
        let images = conversation.images.iter().enumerate();
        let line = Line {
            id: conversation.id.clone(),
            messages: conversation.messages.clone(),
            images: images.map(|(n, image)| self.store(&conversation.id, n, image)).collect::<Result<_>>()?,
            answer_ids: conversation.answer_ids.clone(),
        };
        let mut text = serde_json::to_string(&line)
            .map_err(|e| Error::file(&self.path, WHAT, e.to_string(), "check the conversation"))?;
        text.push('\n');
        // One write per line: a kill leaves whole lines and at most one cut short.
        self.file.write_all(text.as_bytes()).map_err(|e| Error::io("write", &self.path, e))?;
        self.written.insert(line.id);
        Ok(())
    }

    /// The path to write for an image: relative to the file where it lies below it.
    fn store(&self, id: &str, number: usize, image: &ImageSource) -> Result<PathBuf> {
        let folder = folder(&self.path);
        match image {
            ImageSource::File(path) => match path.strip_prefix(folder) {
                Ok(below) => Ok(below.to_path_buf()),
                Err(_) => std::path::absolute(path).map_err(|e| Error::io("find", path, e)),
            },
            ImageSource::Drawn(pixels) => {
                let safe: String = id.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
                let name = PathBuf::from("images").join(format!("{safe}_{number}.png"));
                let path = folder.join(&name);
                std::fs::create_dir_all(folder.join("images")).map_err(|e| Error::io("write", &path, e))?;
                pixels.save(&path).map_err(|e| Error::io("write", &path, std::io::Error::other(e)))?;
                Ok(name)
            }
        }
    }
}

fn ids(path: &Path, bytes: &[u8]) -> Result<HashSet<String>> {
    let lines = lines::parse::<Line>(path, &String::from_utf8_lossy(bytes), WHAT)?;
    Ok(lines.into_iter().map(|(_, line)| line.id).collect())
}

/// The folder of a file; a bare name lies in the current one.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn talk(id: &str) -> Conversation {
        Conversation {
            id: id.into(),
            messages: vec![Message::user("<image>\nQ"), Message::assistant("A")],
            images: vec![ImageSource::Drawn(image::RgbImage::from_pixel(2, 3, image::Rgb([1, 2, 3])))],
            answer_ids: Some(vec![5, 2]),
            ..Conversation::default()
        }
    }

    #[test]
    fn goes_on_after_a_kill_in_the_middle_of_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("data/train.jsonl");
        Writer::open(&path).unwrap().push(&talk("a/1")).unwrap();
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&whole[..], b"{\"id\": \"b"].concat()).unwrap();
        let mut writer = Writer::open(&path).unwrap();
        assert!(writer.has("a/1") && writer.len() == 1);
        assert!(writer.push(&talk("a/1")).is_err());
        writer.push(&talk("b")).unwrap();
        let all = read(&path).unwrap();
        assert_eq!(all.iter().map(|c| c.id.as_str()).collect::<Vec<_>>(), ["a/1", "b"]);
        assert_eq!((&all[0].messages, &all[0].answer_ids), (&talk("").messages, &Some(vec![5, 2])));
        let ImageSource::File(image) = &all[0].images[0] else { panic!("a file was written") };
        assert_eq!(image::open(image).unwrap().to_rgb8().get_pixel(1, 2).0, [1, 2, 3]);
    }

    #[test]
    fn only_a_file_is_gone_on_with() {
        let dir = tempfile::tempdir().unwrap();
        let devices: &[&Path] = if cfg!(unix) { &[Path::new("/dev/full"), Path::new("/dev/zero")] } else { &[] };
        for path in [dir.path()].iter().chain(devices) {
            let message = Writer::open(path).map(|_| ()).unwrap_err().to_string();
            assert!(message.contains("a file to add lines to"), "{message}");
        }
    }

    #[test]
    fn unknown_keys_and_missing_images_name_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("train.jsonl");
        let good = r#"{"id": "a", "messages": [{"role": "user", "content": "hi"}]}"#;
        std::fs::write(&path, format!("{good}\n{}\n", good.replace("\"id\"", "\"colour\": 1, \"id\""))).unwrap();
        let message = read(&path).unwrap_err().to_string();
        assert!(message.contains("line 2") && message.contains("colour"), "{message}");
        std::fs::write(&path, good.replace("}]}", "}], \"images\": [\"gone.png\"]}")).unwrap();
        assert!(read(&path).unwrap_err().to_string().contains("gone.png"));
    }
}
