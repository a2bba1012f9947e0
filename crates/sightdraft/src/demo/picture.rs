//! A chart as terminal characters in 24-bit colour. The plot is made of quarter blocks; the words, whose strokes are finer than
//! that, are typed where the picture has them.

use std::fmt::Write;

use sightdraft_datasets::charts::{Chart, SLOT};
use sightdraft_vision::Image;

/// Pixels of one character.
const WIDE: usize = 2;
const HIGH: usize = 4;

/// Columns of an item's slot.
const SLOT_COLUMNS: usize = SLOT as usize / WIDE;

/// Lines above the plot, and those of the title's words in them.
const TITLE: usize = 7;
const WORDS: [usize; 2] = [2, 4];

/// The first line below the plot, and those of labels and values.
const FOOT: usize = 29;
const LABELS: usize = 30;
const VALUES: usize = 32;

/// Blocks by quarter: bit 0 upper left, 1 upper right, 2 lower left, 3 lower right.
const QUARTERS: [char; 16] = ['█', '▘', '▝', '▀', '▖', '▌', '▞', '▛', '▗', '▚', '▐', '▜', '▄', '▙', '▟', '█'];

const TEXT: Colour = [32, 34, 44];

type Colour = [u8; 3];

/// One character of the terminal.
#[derive(Clone, Copy)]
struct Cell {
    glyph: char,
    ink: Colour,
    paper: Colour,
}

/// `chart`, whose picture is `image`, in 70 columns and 35 lines.
pub fn characters(chart: &Chart, image: &Image) -> String {
    let mut cells = blocks(image);
    let columns = image.width / WIDE;
    let first_ink = |lines: std::ops::Range<usize>| {
        (0..columns).find(|&column| lines.clone().any(|line| cells[line][column].ink != cells[line][column].paper))
    };
    let (title, slots) =
        (first_ink(0..TITLE).unwrap_or(0).max(1), first_ink(FOOT..cells.len()).unwrap_or(0) / SLOT_COLUMNS);
    let paper = Cell { glyph: '█', ink: cells[0][0].paper, paper: cells[0][0].paper };
    for line in (0..TITLE).chain(FOOT..cells.len()) {
        cells[line].fill(paper);
    }
    for (word, line) in chart.title.to_uppercase().split(' ').zip(WORDS) {
        write(&mut cells[line], title, word);
    }
    for (i, (label, value)) in chart.labels.iter().zip(&chart.values).enumerate() {
        let value = value.to_string();
        let centred = |text: &str| (slots + i) * SLOT_COLUMNS + SLOT_COLUMNS.saturating_sub(text.len()) / 2;
        write(&mut cells[LABELS], centred(label), &label.to_uppercase());
        write(&mut cells[VALUES], centred(&value), &value);
    }
    render(&cells)
}

/// Types `text` over a line; what does not fit is cut off.
fn write(line: &mut [Cell], column: usize, text: &str) {
    for (cell, glyph) in line.iter_mut().skip(column).zip(text.chars()) {
        (cell.glyph, cell.ink) = (glyph, TEXT);
    }
}

fn render(cells: &[Vec<Cell>]) -> String {
    let mut text = String::new();
    for line in cells {
        for Cell { glyph, ink: [r, g, b], paper: [pr, pg, pb] } in line {
            let _ = write!(text, "\x1b[38;2;{r};{g};{b};48;2;{pr};{pg};{pb}m{glyph}");
        }
        text.push_str("\x1b[0m\n");
    }
    text
}

/// The picture, 2 x 4 pixels a cell; what is left over at the right and the bottom is cut off.
fn blocks(image: &Image) -> Vec<Vec<Cell>> {
    let line = |row| (0..image.width / WIDE).map(|column| block(quarters(image, column, row))).collect();
    (0..image.height / HIGH).map(line).collect()
}

/// The four quarters of a cell, each the mean of one pixel and the one below it.
fn quarters(image: &Image, column: usize, row: usize) -> [Colour; 4] {
    std::array::from_fn(|quarter| {
        let (x, y) = (WIDE * column + quarter % 2, HIGH * row + quarter / 2 * 2);
        let at = |y: usize| 3 * (y * image.width + x);
        mean([at(y), at(y + 1)].map(|at| [image.rgb[at], image.rgb[at + 1], image.rgb[at + 2]]).into_iter())
    })
}

/// The block that shows four quarters best in two colours.
fn block(quarters: [Colour; 4]) -> Cell {
    let far_from = |from: Colour| quarters.into_iter().max_by_key(|c| distance(*c, from)).unwrap_or(from);
    let paper = far_from(quarters[3]);
    let ink = far_from(paper);
    let inked = quarters.map(|c| distance(c, ink) < distance(c, paper));
    let glyph = QUARTERS[inked.iter().enumerate().map(|(i, ink)| usize::from(*ink) << i).sum::<usize>()];
    let colour = |side: bool| mean(quarters.iter().zip(inked).filter(|(_, i)| *i == side).map(|(c, _)| *c));
    let paper = colour(false);
    Cell { glyph, ink: if inked.contains(&true) { colour(true) } else { paper }, paper }
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
    use sightdraft_datasets::charts::Split;
    use sightdraft_eval::benchmarks::charts::picture;

    use super::*;

    #[test]
    fn two_colours_become_the_block_that_parts_them() {
        let (red, white) = ([200, 0, 0], [255; 3]);
        let cell = block([red, red, white, red]);
        assert!(matches!((cell.glyph, cell.ink), ('▖', i) if i == white) || (cell.glyph, cell.ink) == ('▜', red));
        let plain = block([red; 4]);
        assert_eq!((plain.glyph, plain.ink, plain.paper), ('█', red, red));
    }

    #[test]
    fn every_word_of_a_chart_can_be_read() {
        for number in 0..12 {
            let chart = Chart::new(0, Split::HeldOut, number);
            let text = characters(&chart, &picture(&chart));
            assert_eq!(text.lines().count(), 35);
            let glyphs: String = text.split('\x1b').filter_map(|part| part.split_once('m')).map(|(_, g)| g).collect();
            let lines: Vec<&str> = glyphs.lines().collect();
            assert!(lines.iter().all(|line| line.chars().count() == 70));
            for (word, line) in chart.title.to_uppercase().split(' ').zip(WORDS) {
                assert!(lines[line].contains(word), "{} in {}", word, lines[line]);
            }
            for (label, value) in chart.labels.iter().zip(&chart.values) {
                assert!(lines[LABELS].contains(&label.to_uppercase()) && lines[VALUES].contains(&value.to_string()));
            }
        }
    }
}
