//! Image tokens of a prompt: one per image becomes one per image row.

use std::ops::Range;

use sightdraft_core::{Error, Result};

/// Expands each `token` in `ids` to `rows` copies, or leaves ids that are expanded already; returns the ids and where
/// each of the `images` lies.
///
/// # Errors
/// Another number of image tokens than one per image or one per image row; a block that is cut.
pub(crate) fn expand(ids: &[u32], token: u32, images: usize, rows: usize) -> Result<(Vec<u32>, Vec<Range<usize>>)> {
    let found = ids.iter().filter(|id| **id == token).count();
    let repeat = match found {
        found if found == images => rows,
        found if found == images * rows => 1,
        _ => return Err(miscount(found, images, rows)),
    };
    let mut expanded = Vec::with_capacity(ids.len() + found * (repeat - 1));
    let mut starts = Vec::with_capacity(images * rows);
    for id in ids {
        if *id == token {
            starts.extend(expanded.len()..expanded.len() + repeat);
            expanded.extend(std::iter::repeat_n(token, repeat));
        } else {
            expanded.push(*id);
        }
    }
    let blocks = starts.chunks(rows).map(|block| block[0]..block[0] + rows);
    // Rows of one image must lie side by side.
    if let Some(cut) = starts.chunks(rows).find(|block| block[rows - 1] - block[0] != rows - 1) {
        return Err(Error::invalid(
            "image tokens of the prompt",
            format!("{rows} in a row for each image"),
            format!("a block at token {} that is cut by other tokens", cut[0]),
            "give one image token per image, or whole blocks",
        ));
    }
    Ok((expanded, blocks.collect()))
}

fn miscount(found: usize, images: usize, rows: usize) -> Error {
    let what = "image tokens of the prompt";
    let expected = format!("{images} (one per image) or {} (one per image row)", images * rows);
    let (found, mend) = if images == 0 {
        (format!("{found} and no image"), "give the image, or leave its token out of the prompt")
    } else if found < images {
        (format!("{found} for {images} image(s)"), "put one image token into the prompt for each image")
    } else if found < images * rows {
        (
            format!("{found}, so the prompt is cut inside an image block or a token has no image"),
            "cut prompts only outside image blocks, and give one image per image token",
        )
    } else {
        (format!("{found} for {images} image(s)"), "give one image for each image token or block")
    };
    Error::invalid(what, expected, found, mend)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_lie_where_the_tokens_are() {
        let (ids, blocks) = expand(&[5, 9, 6, 9], 9, 2, 3).unwrap();
        assert_eq!((ids, blocks), (vec![5, 9, 9, 9, 6, 9, 9, 9], vec![1..4, 5..8]));
        assert_eq!(expand(&[5, 6], 9, 0, 3).unwrap(), (vec![5, 6], vec![]));
        assert_eq!(expand(&[9; 8], 9, 2, 4).unwrap(), (vec![9; 8], vec![0..4, 4..8]));
    }

    #[test]
    fn tokens_and_images_must_agree() {
        let refusal = |ids: &[u32], images| expand(ids, 9, images, 4).unwrap_err().to_string();
        assert!(refusal(&[1, 2], 1).contains("0 for 1 image"));
        assert!(refusal(&[9, 2], 0).contains("no image"));
        assert!(refusal(&[9, 9, 9], 1).contains("cut inside an image block"));
        assert!(refusal(&[9, 9, 9, 9, 9], 1).contains("5 for 1 image"));
        assert!(refusal(&[9, 9, 1, 9, 9], 1).contains("cut by other tokens"));
    }
}
