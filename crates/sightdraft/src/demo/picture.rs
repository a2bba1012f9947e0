//! A picture as terminal characters in 24-bit colour: 2 x 4 pixels each, in the two colours that tell most of them apart.
//! Plain areas and straight edges become block characters, thin strokes such as letters become braille dots, which lose no
//! pixel.

use std::fmt::Write;

use sightdraft_vision::Image;

/// Pixels of one character.
const WIDE: usize = 2;
const HIGH: usize = 4;

/// Blocks by quarter: bit 0 upper left, 1 upper right, 2 lower left, 3 lower right.
const QUARTERS: [char; 16] = [' ', '▘', '▝', '▀', '▖', '▌', '▞', '▛', '▗', '▚', '▐', '▜', '▄', '▙', '▟', '█'];

/// Braille dots by pixel, row by row.
const DOTS: [[u32; WIDE]; HIGH] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];

type Colour = [u8; 3];

/// The pixels of one character, row by row, as ink (true) or paper.
type Mask = [[bool; WIDE]; HIGH];

/// The picture in `width / 2` columns and `height / 4` lines; what is left over at the right and the bottom is cut off.
pub fn characters(image: &Image) -> String {
    let mut text = String::new();
    for row in 0..image.height / HIGH {
        for column in 0..image.width / WIDE {
            let (glyph, ink, paper) = character(pixels(image, column, row));
            let ([r, g, b], [pr, pg, pb]) = (ink, paper);
            let _ = write!(text, "\x1b[38;2;{r};{g};{b};48;2;{pr};{pg};{pb}m{glyph}");
        }
        text.push_str("\x1b[0m\n");
    }
    text
}

fn pixels(image: &Image, column: usize, row: usize) -> [[Colour; WIDE]; HIGH] {
    std::array::from_fn(|y| {
        std::array::from_fn(|x| {
            let at = 3 * ((HIGH * row + y) * image.width + WIDE * column + x);
            [image.rgb[at], image.rgb[at + 1], image.rgb[at + 2]]
        })
    })
}

/// The character, its ink and its paper.
fn character(pixels: [[Colour; WIDE]; HIGH]) -> (char, Colour, Colour) {
    let all = pixels.as_flattened();
    let far_from = |from: Colour| all.iter().copied().max_by_key(|c| distance(*c, from)).unwrap_or(from);
    let one = far_from(all[0]);
    let other = far_from(one);
    let mut mask: Mask = pixels.map(|row| row.map(|c| distance(c, one) < distance(c, other)));
    // Ink is what there is less of, so that strokes are drawn and not the gaps between them.
    if mask.as_flattened().iter().filter(|ink| **ink).count() >= WIDE * HIGH / 2 {
        mask = mask.map(|row| row.map(|ink| !ink));
    }
    let colour = |ink: bool| mean(all.iter().zip(mask.as_flattened()).filter(|(_, i)| **i == ink).map(|(c, _)| *c));
    (glyph(mask), colour(true), colour(false))
}

fn glyph(mask: Mask) -> char {
    if mask[0] == mask[1] && mask[2] == mask[3] {
        let bits = [mask[0][0], mask[0][1], mask[2][0], mask[2][1]];
        return QUARTERS[bits.iter().enumerate().map(|(i, ink)| usize::from(*ink) << i).sum::<usize>()];
    }
    let inked = mask.as_flattened().iter().zip(DOTS.as_flattened()).filter(|(ink, _)| **ink);
    char::from_u32(0x2800 + inked.map(|(_, dot)| dot).sum::<u32>()).unwrap_or(' ')
}

fn distance(a: Colour, b: Colour) -> u32 {
    a.iter().zip(b).map(|(a, b)| u32::from(a.abs_diff(b)).pow(2)).sum()
}

/// Black if there is nothing to average.
fn mean(colours: impl Iterator<Item = Colour>) -> Colour {
    let mut sum = [0u32; 3];
    let mut count = 0;
    for colour in colours {
        count += 1;
        for (sum, value) in sum.iter_mut().zip(colour) {
            *sum += u32::from(value);
        }
    }
    sum.map(|sum| (sum / count.max(1)) as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RED: Colour = [200, 0, 0];
    const WHITE: Colour = [255; 3];

    /// A picture of one character: `#` red, all else white.
    fn draw(rows: [&str; HIGH]) -> Image {
        let rgb = rows.iter().flat_map(|row| row.bytes()).flat_map(|b| if b == b'#' { RED } else { WHITE }).collect();
        Image { width: WIDE, height: HIGH, rgb }
    }

    #[test]
    fn edges_are_blocks_and_strokes_are_dots() {
        for (rows, glyph) in [
            (["##", "##", "..", ".."], '▀'),
            (["..", "..", ".#", ".#"], '▗'),
            (["#.", "..", "..", ".#"], '⢁'),
            (["##", "..", "..", ".."], '⠉'),
        ] {
            let expected = format!("\x1b[38;2;200;0;0;48;2;255;255;255m{glyph}\x1b[0m\n");
            assert_eq!(characters(&draw(rows)), expected);
        }
    }

    #[test]
    fn one_colour_fills_the_character() {
        assert!(characters(&draw(["##"; HIGH])).contains("48;2;200;0;0m "));
    }

    #[test]
    fn leftovers_are_cut_off() {
        let image = Image { width: 5, height: 7, rgb: vec![9; 105] };
        let text = characters(&image);
        assert_eq!((text.lines().count(), text.matches('m').count()), (1, 3));
    }
}
