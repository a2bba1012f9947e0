//! What a benchmark is.

use std::path::PathBuf;

use sightdraft_core::Result;
use sightdraft_vision::Image;

/// A picture of a question, decoded only when its turn comes.
#[derive(Debug, Clone)]
pub enum Picture {
    /// A PNG or JPEG file.
    File(PathBuf),
    /// Pixels at hand.
    Drawn(Image),
}

impl Picture {
    /// The decoded picture.
    pub fn open(&self) -> Result<Image> {
        match self {
            Self::File(path) => Image::open(path),
            Self::Drawn(image) => Ok(image.clone()),
        }
    }
}

/// One question, of one turn or several.
#[derive(Debug, Clone)]
pub struct Item {
    /// Name within the benchmark.
    pub id: String,
    /// Kind of question, where the benchmark has kinds.
    pub category: Option<String>,
    /// What the person says, turn by turn; pictures stand as `<image>` in the first.
    pub turns: Vec<String>,
    /// The pictures, in order.
    pub pictures: Vec<Picture>,
    /// Right answers, or what scoring needs to judge one.
    pub references: Vec<String>,
}

/// Questions, how long answers may be, and how they are scored.
pub trait Benchmark {
    /// Its name, as `--benchmarks` takes it.
    fn name(&self) -> &str;

    /// The exact words around `{question}`.
    fn instruction(&self) -> &str;

    /// The questions.
    fn items(&self) -> &[Item];

    /// Most tokens of one answer.
    fn max_new_tokens(&self) -> usize;

    /// The score of the last of `answers` (one per turn), 0 to 1; `None` where no rule can tell.
    fn score(&self, item: &Item, answers: &[String]) -> Option<f64>;

    /// Whether the draft could see anything.
    fn has_pictures(&self) -> bool {
        self.items().iter().any(|item| !item.pictures.is_empty())
    }
}
