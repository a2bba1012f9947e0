//! Which token each draft cell is about.
//!
//! The feature of position t goes with the embedding of x_{t+1}; unrolled step j at that row predicts x_{t+2+j}. The target's
//! own distribution of that token is its row t+1+j. A cell trains when x_{t+2+j} is an assistant token, so every assistant
//! token is predicted once per step, the first one included, and nothing beyond the last token of the sequence is.

/// One sequence's anchors: positions t with at least one step that trains.
pub fn anchors(assistant: &[bool], steps: usize) -> Vec<usize> {
    (0..assistant.len().saturating_sub(2)).filter(|&t| (0..steps).any(|j| trains(assistant, t, j))).collect()
}

/// Whether step j at position t is about an assistant token.
pub fn trains(assistant: &[bool], t: usize, j: usize) -> bool {
    assistant.get(t + 2 + j).copied().unwrap_or(false)
}

/// The target row that step j at position t is compared with.
pub fn target_row(t: usize, j: usize) -> usize {
    t + 1 + j
}

/// Rows of the target whose distribution is needed at all: those before an assistant token, the very first position apart
/// (no feature comes before it).
pub fn target_rows(assistant: &[bool]) -> Vec<usize> {
    (1..assistant.len().saturating_sub(1)).filter(|&r| assistant[r + 1]).collect()
}

/// The target's greedy path from anchor t: `argmax[r]` is the target's choice after position r. Step j is known while
/// x_{t+2+j} is an assistant token and every earlier token of the path is what the target chose, for only then is the
/// teacher-forced row the one the path would see.
pub fn greedy_path(ids: &[u32], assistant: &[bool], argmax: &[u32], t: usize, steps: usize) -> Vec<Option<u32>> {
    let mut path = vec![None; steps];
    for (j, choice) in path.iter_mut().enumerate() {
        if !trains(assistant, t, j) {
            break;
        }
        let chosen = argmax[target_row(t, j)];
        *choice = Some(chosen);
        if chosen != ids[t + 2 + j] {
            break;
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_cells_that_predict_answer_tokens_train() {
        // Six tokens, the last two the answer.
        let assistant = [false, false, false, false, true, true];
        for j in 0..4 {
            let cells: Vec<usize> = (0..6).filter(|&t| trains(&assistant, t, j)).collect();
            let predicted: Vec<usize> = cells.iter().map(|t| t + 2 + j).collect();
            let want: Vec<usize> = [4, 5].into_iter().filter(|x| *x >= 2 + j).collect();
            assert_eq!(predicted, want, "step {j}");
        }
        assert_eq!(anchors(&assistant, 1), [2, 3]);
        assert_eq!(anchors(&assistant, 3), [0, 1, 2, 3]);
        assert_eq!(target_rows(&assistant), [3, 4]);
    }

    #[test]
    fn the_end_of_the_sequence_trains_nothing() {
        let assistant = [false, true, true];
        assert!(!trains(&assistant, 1, 0));
        assert!(!trains(&assistant, 0, 1));
        assert_eq!(anchors(&assistant, 5), [0]);
        assert_eq!(anchors(&[true], 5), [0usize; 0]);
    }

    #[test]
    fn the_greedy_path_stops_behind_its_first_departure_from_the_data() {
        let ids = [1, 2, 3, 4, 5, 6];
        let assistant = [false, false, true, true, true, true];
        let argmax = [0, 3, 4, 9, 6, 0];
        assert_eq!(greedy_path(&ids, &assistant, &argmax, 0, 4), [Some(3), Some(4), Some(9), None]);
        assert_eq!(greedy_path(&ids, &assistant, &argmax, 3, 3), [Some(6), None, None]);
    }
}
