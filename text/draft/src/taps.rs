//! Which hidden states a draft reads when nothing says otherwise.

use sightdraft_core::{Error, Result};

use crate::Method;

/// Indices into HF `hidden_states` (index k = input of layer k), low to high, for a target of `layers` layers. Drafts that share
/// the target's head read what the head reads, the last one, after the final norm. EAGLE-3 reads three:
///
/// From eight layers on they are the published ones, inputs of layers 2, N/2 and N-3. In a shallower target those coincide, so there it is
/// the inputs of layers 1, N/2 and N-1, and of layers 0, 1, 2 in a target of three (derived). All are inputs of existing layers,
/// which is what serving engines can record.
///
/// # Errors
/// Fewer than three layers for EAGLE-3.
pub fn default_taps(method: Method, layers: usize) -> Result<Vec<usize>> {
    if method.shares_head() {
        return Ok(vec![layers]);
    }
    match layers {
        0..=2 => Err(Error::invalid(
            "num_hidden_layers of the target",
            "at least 3 layers, so that three distinct hidden states can be tapped",
            layers.to_string(),
            "use a deeper target, or name the taps yourself with eagle_aux_hidden_state_layer_ids",
        )),
        3 => Ok(vec![0, 1, 2]),
        4..=7 => Ok(vec![1, layers / 2, layers - 1]),
        _ => Ok(vec![2, layers / 2, layers - 3]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn taps_are_distinct_in_range_and_ascending() {
        for layers in 3..80 {
            let taps = default_taps(Method::Eagle3, layers).unwrap();
            assert!(taps.windows(2).all(|pair| pair[0] < pair[1]), "{layers}: {taps:?}");
            assert!(taps[2] < layers, "{layers}: {taps:?}");
        }
        assert_eq!(default_taps(Method::Eagle3, 8).unwrap(), [2, 4, 5]);
        assert_eq!(default_taps(Method::Eagle3, 32).unwrap(), [2, 16, 29]);
        assert_eq!(default_taps(Method::Hass, 32).unwrap(), [32]);
    }

    #[test]
    fn too_shallow_a_target_names_the_config_key() {
        for layers in 1..3 {
            assert!(default_taps(Method::Eagle3, layers).unwrap_err().to_string().contains("num_hidden_layers"));
        }
    }
}
