//! A picture as terminal characters: upper half blocks, two pixels each, in 24-bit colour.

use std::fmt::Write;

use sightdraft_vision::Image;

/// Pixels of the picture that one pixel of the terminal averages, along each side.
const SCALE: usize = 2;

/// The picture in `width / 2` columns and `height / 4` lines.
pub fn half_blocks(image: &Image) -> String {
    let (columns, rows) = (image.width / SCALE, image.height / SCALE);
    let mut text = String::new();
    for row in (0..rows).step_by(2) {
        for column in 0..columns {
            let [r, g, b] = average(image, column, row);
            let _ = write!(text, "\x1b[38;2;{r};{g};{b}m");
            if row + 1 < rows {
                let [r, g, b] = average(image, column, row + 1);
                let _ = write!(text, "\x1b[48;2;{r};{g};{b}m");
            }
            text.push('▀');
        }
        text.push_str("\x1b[0m\n");
    }
    text
}

/// The mean colour of one square of the picture.
fn average(image: &Image, column: usize, row: usize) -> [u8; 3] {
    let mut sum = [0usize; 3];
    for y in row * SCALE..(row + 1) * SCALE {
        for x in column * SCALE..(column + 1) * SCALE {
            let at = 3 * (y * image.width + x);
            for (sum, value) in sum.iter_mut().zip(&image.rgb[at..at + 3]) {
                *sum += usize::from(*value);
            }
        }
    }
    sum.map(|sum| (sum / (SCALE * SCALE)) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_pixels_share_a_character_and_colours_are_averaged() {
        // 4 x 4: black above, white below, but for one white pixel in the upper left square.
        let mut rgb = [vec![0; 24], vec![255; 24]].concat();
        rgb[..3].fill(255);
        let text = half_blocks(&Image { width: 4, height: 4, rgb });
        assert_eq!(text.lines().count(), 1);
        assert_eq!(text.matches('▀').count(), 2);
        assert!(text.starts_with("\x1b[38;2;63;63;63m\x1b[48;2;255;255;255m▀\x1b[38;2;0;0;0m"));
    }
}
